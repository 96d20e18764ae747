// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
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

/// The folder, or its nearest parent that is there.
fs::path nearest_existing(const std::string& folder) {
  fs::path existing = fs::absolute(folder);
  std::error_code ignored;
  while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
  return existing;
}

}  // namespace

std::int64_t free_disk_bytes(const std::string& folder) {
  const fs::path existing = nearest_existing(folder);
  struct statvfs status {};
  if (::statvfs(existing.c_str(), &status) != 0) {
    throw Error(Failure::write, existing.string() + ": cannot ask for its free space: " + errno_text());
  }
  const double bytes = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  const auto most = std::numeric_limits<std::int64_t>::max();
  const bool unknown = status.f_blocks == 0 || bytes >= static_cast<double>(most);
  return unknown ? most : static_cast<std::int64_t>(bytes);
}

void require_writable(const std::string& folder) {
  const std::string existing = nearest_existing(folder).string();
  std::string name = existing + "/.kozero-XXXXXX";
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) throw Error(Failure::write, existing + ": cannot make a file there: " + errno_text());
  ::close(file);
  ::unlink(name.c_str());
}

std::string space_text(std::int64_t needed, std::int64_t free) {
  return "takes " + with_bytes(needed) + " and " + with_bytes(free) + " are free";
}

}  // namespace kozero::io
