// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// file.cpp: the POSIX calls, each with its return code checked, EINTR and short writes included.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"

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

namespace {

int flags_of(FileDescriptor::Use use) {
  switch (use) {
    case FileDescriptor::Use::create:
      return O_CLOEXEC | O_WRONLY | O_CREAT | O_EXCL;
    case FileDescriptor::Use::update:
      return O_CLOEXEC | O_WRONLY;
    case FileDescriptor::Use::read:
      return O_CLOEXEC | O_RDONLY | O_NONBLOCK | O_NOCTTY;  // so that a FIFO opens without a writer and is rejected
    default:
      return O_CLOEXEC | O_RDONLY;
  }
}

[[noreturn]] void fail_write(const std::string& path, const char* what) {
  throw Error(Failure::write, path + ": cannot " + what + ": " + errno_text());
}

}  // namespace

std::string errno_text() { return std::strerror(errno); }

FileDescriptor::FileDescriptor(const std::string& path, Use use)
    : path_(path), number_(::open(path.c_str(), flags_of(use), 0644)) {
  if (number_ < 0 && use == Use::read) throw Error(Failure::input, path + ": cannot open: " + errno_text());
  if (number_ < 0) fail_write(path, "open");
  if (use != Use::read) return;
  struct stat status {};
  const bool known = ::fstat(number_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) return;
  const std::string reason = known ? not_regular_text(status.st_mode) : "cannot stat: " + errno_text();
  ::close(number_);
  throw Error(Failure::input, path + ": " + reason);
}

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) ::close(number_);
}

void FileDescriptor::write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::write(number_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_write(path_, "write");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void FileDescriptor::write_at(std::string_view bytes, std::int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(number_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_write(path_, "write");
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += written;
  }
}

void FileDescriptor::resize(std::int64_t size) const {
  if (::ftruncate(number_, size) != 0) fail_write(path_, "resize");
}

void FileDescriptor::start_sync(std::int64_t offset, std::int64_t extent) const noexcept {
#if defined(SYNC_FILE_RANGE_WRITE)
  // Only a hint; sync() reports whether the bytes are stored.
  static_cast<void>(::sync_file_range(number_, offset, extent, SYNC_FILE_RANGE_WRITE));
#else
  static_cast<void>(offset);
  static_cast<void>(extent);
#endif
}

std::int64_t FileDescriptor::read_up_to(std::span<char> bytes, std::int64_t offset) const {
  std::int64_t done = 0;
  while (done < static_cast<std::int64_t>(bytes.size())) {
    const auto rest = bytes.subspan(static_cast<std::size_t>(done));
    const ssize_t got = ::pread(number_, rest.data(), rest.size(), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(Failure::input, path_ + ": cannot read: " + errno_text());
    if (got == 0) break;
    done += got;
  }
  return done;
}

void FileDescriptor::read_at(std::span<char> bytes, std::int64_t offset) const {
  const std::int64_t done = read_up_to(bytes, offset);
  if (done == static_cast<std::int64_t>(bytes.size())) return;
  throw Error(Failure::input, path_ + ": ends at byte " + std::to_string(offset + done));
}

std::int64_t FileDescriptor::size() const { return stamp().size; }

FileDescriptor::Stamp FileDescriptor::stamp() const {
  struct stat status {};
  if (::fstat(number_, &status) != 0) throw Error(Failure::input, path_ + ": cannot stat: " + errno_text());
  return {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

void FileDescriptor::sync() const {
  if (::fsync(number_) != 0) fail_write(path_, "fsync");
}

void FileDescriptor::close() {
  if (::close(std::exchange(number_, -1)) != 0) fail_write(path_, "close");
}

std::string partial_name(const std::string& path) { return path + ".partial"; }

void publish(const std::string& path) {
  const std::string partial = partial_name(path);
  FileDescriptor(partial, FileDescriptor::Use::sync).sync();
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    throw Error(Failure::write, path + ": cannot rename " + partial + ": " + errno_text());
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  FileDescriptor(folder.empty() ? "." : folder, FileDescriptor::Use::sync).sync();
}

void write_whole_file(const std::string& path, std::string_view bytes) {
  std::error_code ignored;
  std::filesystem::remove(partial_name(path), ignored);
  try {
    FileDescriptor file(partial_name(path), FileDescriptor::Use::create);
    file.write(bytes);
    file.close();
    publish(path);
  } catch (const Error&) {
    std::filesystem::remove(partial_name(path), ignored);
    throw;
  }
}

std::string read_whole_file(const std::string& path, std::int64_t limit) {
  const FileDescriptor file(path, FileDescriptor::Use::read);
  const std::int64_t size = file.size();
  if (size > limit) {
    throw Error(Failure::input, path + ": " + std::to_string(size) + " bytes, more than the " + std::to_string(limit) +
                                    " such a file may have");
  }
  std::string bytes(static_cast<std::size_t>(size), '\0');
  file.read_at(bytes, 0);
  return bytes;
}

LineFile::LineFile(const std::string& path, Open how) : path_(path) {
  constexpr int kAlways = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
  number_ = ::open(path.c_str(), kAlways | (how == Open::create ? O_EXCL : 0), 0644);
  if (number_ < 0 && errno == EEXIST) {
    throw Error(Failure::write, path + ": exists already; a run is never overwritten");
  }
  if (number_ < 0) throw Error(Failure::write, path + ": cannot open: " + errno_text());
  struct stat status {};
  if (::fstat(number_, &status) == 0 && S_ISREG(status.st_mode)) return;
  ::close(number_);
  throw Error(Failure::write, path + ": not a regular file, and lines are appended here; move it away");
}

LineFile::~LineFile() {
  if (number_ >= 0) ::close(number_);
}

LineFile::LineFile(LineFile&& other) noexcept { *this = std::move(other); }

LineFile& LineFile::operator=(LineFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(number_, other.number_);
  std::swap(buffer_, other.buffer_);
  std::swap(excess_, other.excess_);
  return *this;
}

bool LineFile::take_back() {
  struct stat status {};
  if (excess_ == 0) return true;
  if (::fstat(number_, &status) != 0) return false;
  if (::ftruncate(number_, status.st_size - static_cast<off_t>(excess_)) != 0) return false;
  excess_ = 0;
  return true;
}

void LineFile::append(std::string_view line) {
  buffer_.assign(line).push_back('\n');
  const bool whole = take_back();
  while (whole && excess_ < buffer_.size()) {
    const ssize_t written = ::write(number_, buffer_.data() + excess_, buffer_.size() - excess_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    excess_ += static_cast<std::size_t>(written);
  }
  if (whole && excess_ == buffer_.size()) {
    excess_ = 0;
    return;
  }
  const std::string reason = errno_text();
  take_back();
  throw Error(Failure::write, path_ + ": cannot write: " + reason);
}

}  // namespace kozero::io
