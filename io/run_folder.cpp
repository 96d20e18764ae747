// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/run/run_lock.hpp>
#include <kozero/io/run_folder.hpp>

namespace kozero::io {

namespace fs = std::filesystem;

namespace {

/// Creates the empty log; false where it is there already. Only one of several processes gets true.
bool mark(const fs::path& folder) {
  const std::string path = (folder / kLogFile).string();
  std::FILE* file = std::fopen(path.c_str(), "wx");
  if (file == nullptr && errno != EEXIST) throw Error(Failure::write, path + ": cannot create: " + errno_text());
  if (file != nullptr) std::fclose(file);
  return file != nullptr;
}

/// `locked`: the lock's file may be there.
bool is_free(const fs::path& folder, bool locked) {
  if (!fs::is_directory(folder)) return false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!locked || entry.path().filename() != kLockFile) return false;
  }
  return true;
}

bool take(const fs::path& folder, bool locked) {
  if (fs::exists(folder) && !is_free(folder, locked)) return false;
  fs::create_directories(folder);
  return mark(folder);
}

}  // namespace

std::string without_trailing_slash(const std::string& folder) { return (fs::path(folder) / "").parent_path().string(); }

std::string set_aside(const std::string& path) {
  std::string aside = path + ".old";
  for (int number = 2; is_there(aside); ++number) aside = path + ".old-" + std::to_string(number);
  std::error_code problem;
  fs::rename(path, aside, problem);
  if (problem) throw Error(Failure::write, path + ": cannot rename to " + aside + ": " + problem.message());
  return aside;
}

std::string create_run_folder(const std::string& wanted, const std::string& locked) {
  const fs::path first = without_trailing_slash(wanted);
  if (first.empty()) throw Error(Failure::deck, "run.dir = \"" + wanted + "\": accepted is the path of a folder");
  try {
    for (int number = 1;; ++number) {
      const fs::path folder = number == 1 ? first : fs::path(first.string() + "-" + std::to_string(number));
      if (take(folder, folder == fs::path(locked))) return folder.string();
    }
  } catch (const fs::filesystem_error& problem) {
    throw Error(Failure::write, "run.dir: " + problem.path1().string() + ": " + problem.code().message());
  }
}

}  // namespace kozero::io
