// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/io/memory_file.hpp>

namespace kozero::io {

namespace {

[[noreturn]] void fail(const char* what) {
  throw Error(Failure::write, std::string("a file in memory: cannot ") + what + ": " + errno_text());
}

}  // namespace

MemoryFile::MemoryFile()
    : number_(::memfd_create("kozero-hdf5", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(number_)) {
  if (number_ < 0) fail("create");
}

MemoryFile::~MemoryFile() { ::close(number_); }

void MemoryFile::copy_to(const FileDescriptor& file) const {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  const std::int64_t size = ::lseek(number_, 0, SEEK_END);
  if (size < 0) fail("seek");
  file.resize(size);
  std::vector<char> piece(static_cast<std::size_t>(kPiece));
  for (std::int64_t first = 0; (first = ::lseek(number_, first, SEEK_DATA)) >= 0;) {
    const std::int64_t hole = ::lseek(number_, first, SEEK_HOLE);
    if (hole < 0) fail("seek");
    while (first < hole) {
      const auto extent = static_cast<std::size_t>(std::min(kPiece, hole - first));
      const ssize_t got = ::pread(number_, piece.data(), extent, first);
      if (got <= 0) fail("read");
      file.write_at({piece.data(), static_cast<std::size_t>(got)}, first);
      first += got;
    }
  }
  if (errno != ENXIO) fail("seek");  // which says that no bytes follow
}

}  // namespace kozero::io
