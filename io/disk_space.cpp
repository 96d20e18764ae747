// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/statvfs.h>

#include <filesystem>
#include <limits>

#include <kozero/core/error.hpp>
#include <kozero/io/disk_space.hpp>
#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/readable.hpp>

namespace kozero::io {

namespace fs = std::filesystem;

namespace {

std::string with_bytes(std::int64_t bytes) { return readable_bytes(bytes) + " (" + std::to_string(bytes) + " bytes)"; }

}  // namespace

std::int64_t free_disk_bytes(const std::string& folder) {
  fs::path existing = fs::absolute(folder);
  std::error_code ignored;
  while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
  struct statvfs status {};
  if (::statvfs(existing.c_str(), &status) != 0) {
    throw Error(Failure::write, existing.string() + ": cannot ask for its free space: " + errno_text());
  }
  const double bytes = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  const auto most = std::numeric_limits<std::int64_t>::max();
  const bool unknown = status.f_blocks == 0 || bytes >= static_cast<double>(most);
  return unknown ? most : static_cast<std::int64_t>(bytes);
}

std::string space_text(std::int64_t needed, std::int64_t free) {
  return "takes " + with_bytes(needed) + " and " + with_bytes(free) + " are free";
}

}  // namespace kozero::io
