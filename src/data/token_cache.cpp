// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_cache.cpp: finds or makes an entry of the cache, under a lock beside it.
#include <fmt/format.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/data/token_cache.hpp>
#include "io/posix/file.hpp"
#include "io/run/run_folder.hpp"
#include "src/data/entry_lock.hpp"

namespace kozero::data {

namespace {

namespace fs = std::filesystem;

/// Removes what processes without the entry's lock left when they were killed; the caller holds the lock.
void remove_partial(const fs::path& cache, const std::string& prefix) {
  for (const auto& each : fs::directory_iterator(cache)) {
    if (each.path().filename().string().starts_with(prefix)) fs::remove_all(each.path());
  }
}

/// Gives the finished folder its name. If another process was faster, as it may be without locks, its entry stays.
void publish_entry(const std::string& made, const std::string& entry) {
  const fs::path cache = fs::path(entry).parent_path();
  io::FileDescriptor(made, io::FileDescriptor::Use::sync).sync();
  std::error_code problem;
  fs::rename(made, entry, problem);
  if (problem && io::is_folder(entry)) {
    fs::remove_all(made);
    return;
  }
  if (problem) throw Error(Failure::write, entry + ": cannot be made: " + problem.message());
  io::FileDescriptor(cache.string(), io::FileDescriptor::Use::sync).sync();
}

PreparedTokens made_entry(const PrepareOrder& order, const std::vector<TextFile>& files, const std::string& digits) {
  // Hidden names are no text: a cache inside the folder of a text does not become part of it.
  const fs::path cache = order.folder;
  const std::string entry = (cache / digits).string();
  const std::string prefix = "." + digits + ".partial.";
  fs::create_directories(cache);
  const EntryLock lock((cache / ("." + digits + ".lock")).string(), entry, order.say);
  if (is_current(entry, digits)) return read_prepared(entry);
  if (io::is_there(entry))
    order.say(entry + ": damaged; it is now " + io::set_aside(entry) + ", and the tokens are made again");
  if (lock.is_held()) remove_partial(cache, prefix);
  // Who holds the lock goes on with what the last holder left.
  const std::string partial = lock.is_held()
                                  ? (cache / ("." + digits + ".partial")).string()
                                  : (cache / fmt::format("{}{}.{}", prefix, host_name(), ::getpid())).string();
  try {
    make_tokens(order, files, partial, digits, *distributed::make_self_communicator());
    publish_entry(partial, entry);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    throw;
  }
  PreparedTokens tokens = read_prepared(entry);
  tokens.reused = false;
  return tokens;
}

}  // namespace

PreparedTokens prepare_in_cache(const PrepareOrder& order) {
  SkippedFiles skipped;
  const auto files = order.files ? *order.files : find_text(order.all_sources(), skipped);
  const std::string digits = fingerprint_of(order, files);
  const std::string entry = (fs::path(order.folder) / digits).string();
  PreparedTokens tokens;
  try {
    tokens = is_current(entry, digits) ? read_prepared(entry) : made_entry(order, files, digits);
  } catch (const fs::filesystem_error& problem) {
    throw Error(Failure::write, fmt::format("data.cache = \"{}\": {}: {}; give a folder that this user can write",
                                            order.folder, problem.path1().string(), problem.code().message()));
  } catch (const Error& problem) {
    if (problem.failure() != Failure::write) throw;
    throw Error(Failure::write, fmt::format("data.cache = \"{}\": {}; make room, or give a folder that this user can "
                                            "write",
                                            order.folder, problem.what()));
  }
  tokens.skipped = std::move(skipped);
  return tokens;
}

std::string user_token_cache() {
  const auto variable = [](const char* key) {
    return std::string(std::getenv(key) == nullptr ? "" : std::getenv(key));
  };
  const std::string home = variable("HOME");
  const std::string temporary = variable("TMPDIR");
  for (const std::string& candidate :
       {variable("XDG_CACHE_HOME"), home.empty() ? "" : home + "/.cache", temporary.empty() ? "/tmp" : temporary}) {
    if (candidate.empty()) continue;
    const fs::path folder = fs::path(candidate) / "kozero";
    std::error_code problem;
    fs::create_directories(folder, problem);
    if (!problem && ::access(folder.c_str(), W_OK | X_OK) == 0) return (folder / "tokens").string();
  }
  throw Error(Failure::write, "no folder for tokens: XDG_CACHE_HOME, HOME/.cache and TMPDIR cannot be written");
}

}  // namespace kozero::data
