// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <cerrno>

#include <kozero/core/error.hpp>
#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/posix/path_kind.hpp>

namespace kozero::io {

PathKind path_kind(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return PathKind::nothing;
    throw Error(Failure::input, path + ": " + errno_text());
  }
  if (S_ISREG(status.st_mode)) return PathKind::file;
  return S_ISDIR(status.st_mode) ? PathKind::folder : PathKind::other;
}

std::string not_regular_text(unsigned mode) {
  if (S_ISDIR(mode)) return "not a regular file but a folder; name the file in it";
  const char* const kind = S_ISFIFO(mode) ? "FIFO" : S_ISSOCK(mode) ? "socket" : "device";
  return std::string("not a regular file but a ") + kind + ": copy its contents to a file";
}

}  // namespace kozero::io
