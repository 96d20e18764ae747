// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/io/whole_file.hpp>

#include "folder_guard.hpp"

namespace kozero::exchange {

namespace fs = std::filesystem;

namespace {

bool is_export(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config.json", ignored) && !fs::exists(folder / "deck.toml", ignored);
}

/// Throws Error(deck) where there is something at `out` that may not be replaced.
void require_free(const std::string& out, bool force) {
  std::error_code problem;
  if (!fs::exists(out, problem) || (fs::is_directory(out, problem) && fs::is_empty(out, problem))) return;
  if (force && is_export(out)) return;
  throw Error(Failure::deck,
              out + (force ? ": --force replaces an exported model, and this is none; name another folder"
                           : ": there is something already; name a folder that is not there or is empty"));
}

}  // namespace

FolderGuard::FolderGuard(const std::string& out, bool force) : out_((fs::path(out) / "").parent_path().string()) {
  if (out_.empty()) throw Error(Failure::deck, "OUT = \"" + out + "\": accepted is the path of a folder");
  require_free(out_, force);
  std::error_code problem;
  partial_ = io::partial_name(out_);
  fs::remove_all(partial_, problem);
  fs::create_directories(partial_, problem);
  if (problem) throw Error(Failure::write, partial_ + ": cannot make the folder: " + problem.message());
}

FolderGuard::~FolderGuard() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(partial_, ignored);
}

void FolderGuard::commit() {
  std::error_code problem;
  const std::string old = out_ + ".replaced";
  fs::remove_all(old, problem);
  if (is_export(out_)) fs::rename(out_, old, problem);
  if (problem) throw Error(Failure::write, out_ + ": cannot be replaced: " + problem.message());
  io::publish(out_);
  fs::remove_all(old, problem);
  committed_ = true;
}

}  // namespace kozero::exchange
