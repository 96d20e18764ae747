// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <kozero/core/error.hpp>
#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/posix/path_kind.hpp>

namespace kozero::io {

namespace {

int flags_of(FileDescriptor::Use use) {
  switch (use) {
    case FileDescriptor::Use::create:
      return O_CLOEXEC | O_WRONLY | O_CREAT | O_EXCL;
    case FileDescriptor::Use::update:
      return O_CLOEXEC | O_WRONLY;
    case FileDescriptor::Use::read:
      return O_CLOEXEC | O_RDONLY | O_NONBLOCK | O_NOCTTY;  // a FIFO opens without a writer, and is refused
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
  // Only a hint: whether the bytes arrived is what sync() tells.
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

}  // namespace kozero::io
