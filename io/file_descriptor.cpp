// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <kozero/core/error.hpp>
#include <kozero/io/file_descriptor.hpp>

namespace kozero::io {

namespace {

int flags_of(FileDescriptor::Use use) {
  return O_CLOEXEC | (use == FileDescriptor::Use::create ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY);
}

[[noreturn]] void fail_write(const std::string& path, const char* what) {
  throw Error(Failure::write, path + ": cannot " + what + ": " + errno_text());
}

}  // namespace

std::string errno_text() { return std::strerror(errno); }

FileDescriptor::FileDescriptor(const std::string& path, Use use)
    : path_(path), number_(::open(path.c_str(), flags_of(use), 0644)) {
  if (number_ >= 0) return;
  if (use == Use::read) throw Error(Failure::input, path + ": cannot open: " + errno_text());
  fail_write(path, "open");
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
  if (::lseek(number_, offset, SEEK_SET) < 0) fail_write(path_, "seek");
  write(bytes);
}

void FileDescriptor::read_at(std::span<char> bytes, std::int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(number_, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(Failure::input, path_ + ": cannot read: " + errno_text());
    if (got == 0) throw Error(Failure::input, path_ + ": ends at byte " + std::to_string(offset));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

std::int64_t FileDescriptor::size() const {
  struct stat status {};
  if (::fstat(number_, &status) != 0) throw Error(Failure::input, path_ + ": cannot stat: " + errno_text());
  if (!S_ISREG(status.st_mode)) throw Error(Failure::input, path_ + ": not a regular file");
  return status.st_size;
}

void FileDescriptor::sync() const {
  if (::fsync(number_) != 0) fail_write(path_, "fsync");
}

void FileDescriptor::close() {
  if (::close(std::exchange(number_, -1)) != 0) fail_write(path_, "close");
}

}  // namespace kozero::io
