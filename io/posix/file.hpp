// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// file.hpp: files of the operating system: what a path names, open descriptors, whole files, files of lines.
//   write `path.partial`, fsync, rename to `path`, fsync the folder
// A FileDescriptor closes itself. write_whole_file replaces a file or leaves the old one, so that no reader finds half
// a file under its name. A LineFile grows by whole lines. Every failure throws Error(input) or Error(write) with the
// path and errno's text.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kozero::io {

/// The kind of file at a path, links followed.
///   nothing | file: a regular one | folder | other: a FIFO, a device, a socket
/// Only regular files are read: opening a FIFO waits for its writer, and a device may have no end.
enum class PathKind { nothing, file, folder, other };

/// Does not open the file. Throws Error(input), "PATH: REASON", if the system returns an error: a circle of links, a
/// folder without permission, a name that is too long.
PathKind path_kind(const std::string& path);

inline bool is_there(const std::string& path) { return path_kind(path) != PathKind::nothing; }
inline bool is_folder(const std::string& path) { return path_kind(path) == PathKind::folder; }

/// "not a regular file but a FIFO: copy its contents to a file", for a mode of stat(2).
std::string not_regular_text(unsigned mode);

/// An open file that closes itself. Throws Error(input) when opening for reading or reading fails, Error(write) for
/// failures of output.
class FileDescriptor {
 public:
  /// read: a regular file, anything else is rejected without waiting; create: a file that does not exist; update: an
  /// existing file, to be written; sync: an existing file or folder
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
  /// Truncates the file, or extends it by a hole.
  void resize(std::int64_t size) const;
  /// Asks the system to begin writing these bytes to the disk, without waiting, so that sync() has less to do.
  void start_sync(std::int64_t offset, std::int64_t extent) const noexcept;
  /// Fills `bytes` from `offset` up to the file's end; returns the number of bytes.
  [[nodiscard]] std::int64_t read_up_to(std::span<char> bytes, std::int64_t offset) const;
  /// Fills `bytes` from `offset`; a shorter file is an error.
  void read_at(std::span<char> bytes, std::int64_t offset) const;
  [[nodiscard]] std::int64_t size() const;
  /// Changes when the file is written, within the resolution of the file system's clock.
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

/// The name of a file while it is written.
std::string partial_name(const std::string& path);

/// Writes a file that is complete or absent, replacing an older file. Throws Error(write).
void write_whole_file(const std::string& path, std::string_view bytes);

/// Syncs a file (or folder) that was written as partial_name(path), and renames it to `path`. Throws Error(write).
void publish(const std::string& path);

/// All bytes of a file. Throws Error(input) if it cannot be read or has more than `limit` bytes.
std::string read_whole_file(const std::string& path, std::int64_t limit);

/// A file that grows by whole lines, each by one write(2). If a line cannot be written whole, its part is removed and
/// Error(write) thrown with errno's text, so that the file ends in a whole line. A later line is tried again.
class LineFile {
 public:
  enum class Open { create, append };

  LineFile() = default;
  /// create: the file must not exist. append: creates the file if it does not exist. Throws Error(write).
  LineFile(const std::string& path, Open how);
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  [[nodiscard]] bool is_open() const { return number_ >= 0; }
  /// `line` without its line break. Throws Error(write).
  void append(std::string_view line);

 private:
  /// Removes the part of a line that could not be removed before. Returns false if it still cannot.
  bool take_back();

  std::string path_;
  int number_ = -1;
  std::string buffer_;      // the line with its break
  std::size_t excess_ = 0;  // bytes of a broken line at the end
};

}  // namespace kozero::io
