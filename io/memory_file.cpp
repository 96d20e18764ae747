// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/io/memory_file.hpp>

namespace kozero::io {

namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw Error(Failure::write, path + ": cannot " + what + ": " + errno_text());
}

}  // namespace

MemoryFile::MemoryFile() : number_(::mkostemp(path_.data(), O_CLOEXEC)) {
  if (number_ < 0) fail(path_, "create");
}

MemoryFile::~MemoryFile() {
  remove_name();
  ::close(number_);
}

void MemoryFile::remove_name() {
  if (std::exchange(has_name_, false)) ::unlink(path_.c_str());
}

void MemoryFile::copy_to(const FileDescriptor& file) const {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  const std::int64_t size = ::lseek(number_, 0, SEEK_END);
  if (size < 0) fail(path_, "seek");
  file.resize(size);
  std::vector<char> piece(static_cast<std::size_t>(kPiece));
  for (std::int64_t first = 0; (first = ::lseek(number_, first, SEEK_DATA)) >= 0;) {
    const std::int64_t hole = ::lseek(number_, first, SEEK_HOLE);
    if (hole < 0) fail(path_, "seek");
    while (first < hole) {
      const auto extent = static_cast<std::size_t>(std::min(kPiece, hole - first));
      const ssize_t got = ::pread(number_, piece.data(), extent, first);
      if (got <= 0) fail(path_, "read");
      file.write_at({piece.data(), static_cast<std::size_t>(got)}, first);
      first += got;
    }
  }
  if (errno != ENXIO) fail(path_, "seek");  // which says that no bytes follow
}

}  // namespace kozero::io
