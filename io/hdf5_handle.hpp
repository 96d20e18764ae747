// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// hdf5_handle.hpp: an HDF5 identifier that closes itself, the lock around the library, and its errors as ours.
// libhdf5 is not thread-safe as it is usually built: whoever calls it holds an Hdf5Lock. Its own printing is off.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include <kozero/core/error.hpp>

namespace kozero::io {

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

}  // namespace kozero::io
