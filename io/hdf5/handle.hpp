// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// handle.hpp: HDF5 identifiers that close themselves, the lock around libhdf5, its errors, and opening files.
// libhdf5 is not thread-safe: every call is made under an Hdf5Lock. Failures throw Error with HDF5's innermost message.
// A new file is first written to a MemoryFile, because libhdf5 does not survive a failing disk.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"

namespace kozero::io {

// An HDF5 identifier that closes itself, the lock around the library, and its errors as ours.
// libhdf5 is not thread-safe as it is usually built: whoever calls it holds an Hdf5Lock. Its own printing is off.

/// The one lock that all HDF5 calls of the process pass; a thread may hold it several times.
class Hdf5Lock {
 public:
  Hdf5Lock();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

/// Throws Error(failure, "PATH: cannot WHAT: " + HDF5's innermost message). Right after the failing call, under the
/// lock.
[[noreturn]] void fail_hdf5(Failure failure, const std::string& path, const std::string& what);

/// Files, groups, datasets, dataspaces, types, attributes and property lists alike (hid_t is std::int64_t).
class Hdf5Handle {
 public:
  using Close = int (*)(std::int64_t);

  Hdf5Handle() = default;
  Hdf5Handle(std::int64_t id, Close close) : id_(id), close_(close) {}
  ~Hdf5Handle() { release(); }
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    if (this != &other) {
      release();
      id_ = std::exchange(other.id_, -1);
      close_ = other.close_;
    }
    return *this;
  }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;

  [[nodiscard]] std::int64_t id() const { return id_; }
  [[nodiscard]] bool valid() const { return id_ >= 0; }
  /// Closes now; false where HDF5 reports a failure. The destructor, which runs when something failed before, does not
  /// tell.
  bool release() noexcept;

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

// Opens an HDF5 file on this process.
// Objects of 256 KiB and more are aligned to 1 MiB, or to the user block;
// the file is readable by HDF5 1.8 and newer.

enum class Hdf5Access { read, create };  ///< create: an existing file is emptied

/// "1.10.8", of the library that runs.
std::string hdf5_version();

/// `user_block`: bytes that HDF5 leaves free at a new file's beginning, 0 or a power of 2 from 512.
/// Throws Error(input) when reading fails, Error(write) when creating does.
Hdf5Handle open_hdf5(const std::string& path, Hdf5Access access, std::int64_t user_block);

// A file in memory that has no name, for a library that must not meet a failing disk.
// libhdf5 does not survive a failure of H5Fclose (it frees the file, keeps its identifier, and crashes when the process
// ends), so it writes a new file's metadata here, and we copy what it wrote to the disk, with our own checks.
// The file is memfd_create(2)'s: it takes no room in /dev/shm and ends with the process, however that ends.

class MemoryFile {
 public:
  /// Empty. Throws Error(write), which speaks of memory.
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// Opens as any file's does, in this process, while this object lives.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Gives `file` this one's size and all bytes that were written here; its holes stay holes. Throws Error(write).
  void copy_to(const FileDescriptor& file) const;

 private:
  int number_;
  std::string path_;  ///< /proc/self/fd/NUMBER
};

}  // namespace kozero::io
