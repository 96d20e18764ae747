// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/io/whole_file.hpp>

#include "folder_guard.hpp"

namespace kozero::exchange {

namespace fs = std::filesystem;

FolderGuard::FolderGuard(const std::string& out) : out_((fs::path(out) / "").parent_path().string()) {
  if (out_.empty()) throw Error(Failure::deck, "OUT = \"" + out + "\": accepted is the path of a folder");
  std::error_code problem;
  if (fs::exists(out_, problem) && !(fs::is_directory(out_, problem) && fs::is_empty(out_, problem))) {
    throw Error(Failure::deck, out_ + ": there is something already; name a folder that is not there or is empty");
  }
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
  io::publish(out_);
  committed_ = true;
}

}  // namespace kozero::exchange
