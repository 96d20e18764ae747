// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// file_descriptor.hpp: an open POSIX file that closes itself; every failure names the path and errno's text.
// Throws Error(input) when opening for reading or reading fails, Error(write) for everything that concerns output.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kozero::io {

class FileDescriptor {
 public:
  /// read: a regular file, anything else is refused without waiting for it; create: must not exist; update: an
  /// existing file, written; sync: an existing file or folder
  enum class Use { read, create, update, sync };

  FileDescriptor(const std::string& path, Use use);
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept
      : path_(std::move(other.path_)), number_(std::exchange(other.number_, -1)) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  FileDescriptor& operator=(FileDescriptor&&) = delete;

  [[nodiscard]] int number() const { return number_; }
  /// Writes all bytes, at the current position.
  void write(std::string_view bytes) const;
  /// Writes all bytes at `offset`; the current position stays.
  void write_at(std::string_view bytes, std::int64_t offset) const;
  /// Cuts the file, or lengthens it by a hole.
  void resize(std::int64_t size) const;
  /// Asks the system to begin moving these bytes to the disk, and does not wait: less is left for sync().
  void start_sync(std::int64_t offset, std::int64_t extent) const noexcept;
  /// Fills `bytes` from `offset` as far as the file goes; returns how many it filled.
  [[nodiscard]] std::int64_t read_up_to(std::span<char> bytes, std::int64_t offset) const;
  /// Fills `bytes` from `offset`; a file that ends before is an error.
  void read_at(std::span<char> bytes, std::int64_t offset) const;
  [[nodiscard]] std::int64_t size() const;
  /// Another after the file was written to, as far as the file system's clock tells.
  struct Stamp {
    std::int64_t size = 0;
    std::int64_t seconds = 0;
    std::int64_t nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };
  [[nodiscard]] Stamp stamp() const;
  /// Returns when the bytes are on the disk.
  void sync() const;
  /// Closes and checks: some file systems report a failed write only here.
  void close();

 private:
  std::string path_;
  int number_;
};

/// "No such file or directory" and the like, for the current errno.
std::string errno_text();

}  // namespace kozero::io
