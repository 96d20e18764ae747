// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// handle.cpp: the calls to libhdf5 and memfd_create(2) behind handle.hpp.
#include <hdf5.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <string_view>
#include <type_traits>
#include <vector>

#include <kozero/core/error.hpp>
#include "io/hdf5/handle.hpp"
#include "io/posix/readable.hpp"

namespace kozero::io {

static_assert(std::is_same_v<hid_t, std::int64_t> && std::is_same_v<herr_t, int>, "HDF5 1.10 or newer");

namespace {

std::recursive_mutex& mutex() {
  static std::recursive_mutex only;
  return only;
}

/// H5Ewalk's visitor: keeps the first record's text, the innermost function's.
herr_t keep_first(unsigned number, const H5E_error2_t* record, void* text) {
  if (number == 0 && record->desc != nullptr) *static_cast<std::string*>(text) = record->desc;
  return 0;
}

/// The reason of a failed system call, from HDF5's record of two lines: "... error message = 'No space left on device',
/// buf = ..."; for other records the whole text on one line.
std::string reason_in(const std::string& text) {
  constexpr std::string_view kBefore = "error message = '";
  const std::size_t begin = text.find(kBefore);
  if (begin != std::string::npos) {
    const std::size_t first = begin + kBefore.size();
    return text.substr(first, text.find('\'', first) - first);
  }
  return on_one_line(text);
}

constexpr hsize_t kAlignedFrom = 256 << 10;
constexpr std::int64_t kFileAlignment = 1 << 20;

[[noreturn]] void fail(const char* what) {
  throw Error(Failure::write, std::string("a file in memory: cannot ") + what + ": " + errno_text());
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(mutex()) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

void fail_hdf5(Failure failure, const std::string& path, const std::string& what) {
  std::string reason = "HDF5 gives no reason";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
  throw Error(failure, path + ": cannot " + what + ": " + reason_in(reason));
}

bool Hdf5Handle::release() noexcept {
  if (id_ < 0) return true;
  const Hdf5Lock lock;
  return close_(std::exchange(id_, -1)) >= 0;
}

std::string hdf5_version() {
  const Hdf5Lock lock;
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0) return "unknown";
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

Hdf5Handle open_hdf5(const std::string& path, Hdf5Access access, std::int64_t user_block) {
  const Hdf5Lock lock;
  const bool creates = access == Hdf5Access::create;
  const Failure failure = creates ? Failure::write : Failure::input;
  // HDF5 requires that a user block ends on the alignment.
  const auto alignment = static_cast<hsize_t>(user_block > 0 ? std::min(user_block, kFileAlignment) : kFileAlignment);
  const Hdf5Handle properties(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  if (!properties.valid() || H5Pset_alignment(properties.id(), kAlignedFrom, alignment) < 0 ||
      H5Pset_libver_bounds(properties.id(), H5F_LIBVER_V18, H5F_LIBVER_LATEST) < 0) {
    fail_hdf5(failure, path, "set the file's access properties");
  }
  // The default driver requires a path at which the file can be found again, which a MemoryFile does not have.
  if (creates && H5Pset_fapl_stdio(properties.id()) < 0) fail_hdf5(failure, path, "set the file's driver");
  const Hdf5Handle layout(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  if (!layout.valid() || H5Pset_userblock(layout.id(), static_cast<hsize_t>(user_block)) < 0) {
    fail_hdf5(failure, path, "set the file's layout");
  }
  Hdf5Handle file(creates ? H5Fcreate(path.c_str(), H5F_ACC_TRUNC, layout.id(), properties.id())
                          : H5Fopen(path.c_str(), H5F_ACC_RDONLY, properties.id()),
                  H5Fclose);
  if (!file.valid()) fail_hdf5(failure, path, creates ? "create" : "open");
  return file;
}

MemoryFile::MemoryFile()
    : number_(::memfd_create("kozero-hdf5", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(number_)) {
  if (number_ < 0) fail("create");
}

MemoryFile::~MemoryFile() { ::close(number_); }

void MemoryFile::copy_to(const FileDescriptor& file) const {
  constexpr std::int64_t kChunk = std::int64_t{1} << 20;
  const std::int64_t size = ::lseek(number_, 0, SEEK_END);
  if (size < 0) fail("seek");
  file.resize(size);
  std::vector<char> chunk(static_cast<std::size_t>(kChunk));
  for (std::int64_t first = 0; (first = ::lseek(number_, first, SEEK_DATA)) >= 0;) {
    const std::int64_t hole = ::lseek(number_, first, SEEK_HOLE);
    if (hole < 0) fail("seek");
    while (first < hole) {
      const auto extent = static_cast<std::size_t>(std::min(kChunk, hole - first));
      const ssize_t got = ::pread(number_, chunk.data(), extent, first);
      if (got <= 0) fail("read");
      file.write_at({chunk.data(), static_cast<std::size_t>(got)}, first);
      first += got;
    }
  }
  if (errno != ENXIO) fail("seek");  // ENXIO: no bytes follow
}

}  // namespace kozero::io
