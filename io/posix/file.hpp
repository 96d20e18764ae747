// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// file.hpp: files of the operating system: what a path names, open descriptors, whole files, files of lines.
// A FileDescriptor closes itself. write_whole_file replaces a file under its name or leaves the old one. A LineFile
// grows by whole lines. Every failure throws Error(input) or Error(write) with the path and errno's text.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kozero::io {

// What a path names, links followed, without opening it.
//   nothing | file: a regular one | folder | other: a FIFO, a device, a socket
// Only regular files are read: opening a FIFO waits for its writer, and a device may have no end.

enum class PathKind { nothing, file, folder, other };

/// Throws Error(input), "PATH: REASON", where the system does not tell: a circle of links, a folder that may not be
/// searched, a name that is too long.
PathKind path_kind(const std::string& path);

inline bool is_there(const std::string& path) { return path_kind(path) != PathKind::nothing; }
inline bool is_folder(const std::string& path) { return path_kind(path) == PathKind::folder; }

/// "not a regular file but a FIFO: copy its contents to a file", by a mode of stat(2).
std::string not_regular_text(unsigned mode);

// An open POSIX file that closes itself; every failure names the path and errno's text.
// Throws Error(input) when opening for reading or reading fails, Error(write) for everything that concerns output.

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

// Files that are complete or absent.
//   write `path.partial`, fsync, rename to `path`, fsync the folder
// A reader, or the next run after a crash, never meets half a file under its own name.

/// The name a file has while it is written.
std::string partial_name(const std::string& path);

/// Writes the bytes as described above, replacing an older file. Throws Error(write).
void write_whole_file(const std::string& path, std::string_view bytes);

/// Makes a file (or folder) that was written as partial_name(path) durable and gives it its name. Throws Error(write).
void publish(const std::string& path);

/// All bytes of a file. Throws Error(input) where it cannot be read or has more than `limit` bytes.
std::string read_whole_file(const std::string& path, std::int64_t limit);

// A file that grows by whole lines: each is one write(2); one that does not fit is taken back.
// The first line that cannot be written throws Error(write) with errno's text; the file ends in a whole line then, and
// a later line is tried again.

class LineFile {
 public:
  enum class Open { create, append };

  LineFile() = default;
  /// create: the file must not exist. append: made where it does not. Throws Error(write).
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
  /// Cuts off a part of a line that could not be taken back before. False where it still cannot.
  bool take_back();

  std::string path_;
  int number_ = -1;
  std::string buffer_;      // the line with its break
  std::size_t excess_ = 0;  // bytes of a broken line at the end
};

}  // namespace kozero::io
