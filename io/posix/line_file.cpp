// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/posix/line_file.hpp>

namespace kozero::io {

LineFile::LineFile(const std::string& path, Open how) : path_(path) {
  const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | (how == Open::create ? O_EXCL : 0);
  number_ = ::open(path.c_str(), flags, 0644);
  if (number_ < 0 && errno == EEXIST) {
    throw Error(Failure::write, path + ": exists already; a run is never overwritten");
  }
  if (number_ < 0) throw Error(Failure::write, path + ": cannot open: " + errno_text());
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
