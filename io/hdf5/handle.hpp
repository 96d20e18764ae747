// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// handle.hpp: HDF5 identifiers that close themselves, the lock around libhdf5, its errors, and opening files.
// libhdf5 is usually not built thread-safe: every call is made under an Hdf5Lock. Its own printing is off. Failures
// throw Error with HDF5's innermost message. A new file is first written to a MemoryFile, because libhdf5 does not
// survive a failing disk. Objects of 256 KiB and more are aligned to 1 MiB, or to the user block. HDF5 1.8 and newer
// can read the files.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"

namespace kozero::io {

/// The one lock for all HDF5 calls of the process; a thread may lock it several times.
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
  /// Closes now; returns false if HDF5 reports a failure. The destructor ignores failures.
  bool release() noexcept;

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

enum class Hdf5Access { read, create };  ///< create: an existing file is emptied

/// The version of the loaded library: "1.10.8".
std::string hdf5_version();

/// Opens a file on this process. `user_block`: bytes that HDF5 leaves free at a new file's beginning, 0 or a power of 2
/// from 512. Throws Error(input) when reading fails, Error(write) when creating fails.
Hdf5Handle open_hdf5(const std::string& path, Hdf5Access access, std::int64_t user_block);

/// A nameless file in memory. libhdf5 does not survive a failure of H5Fclose (it frees the file, keeps its identifier,
/// and crashes when the process ends), so libhdf5 writes a new file's metadata here, and copy_to() copies them to the
/// disk with our own checks. memfd_create(2) makes the file: it uses no room in /dev/shm and ends with the process.
class MemoryFile {
 public:
  /// An empty file. Throws Error(write) with a text on memory.
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// A path that this process can open during the lifetime of this object.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Gives `file` this file's size and its written bytes; holes stay holes. Throws Error(write).
  void copy_to(const FileDescriptor& file) const;

 private:
  int number_;
  std::string path_;  ///< /proc/self/fd/NUMBER
};

}  // namespace kozero::io
