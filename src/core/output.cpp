// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// output.cpp: the second, non-blocking descriptor of a pipe or terminal, the bytes that wait for a reader, and
// std::cout's buffer on them.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <iostream>
#include <streambuf>
#include <thread>
#include <utility>

#include <kozero/core/output.hpp>

namespace kozero {
namespace {

using namespace std::chrono_literals;

constexpr auto kLock = 1s;                             // a thread that aborted may hold the mutex
constexpr auto kLook = 50ms;                           // at a reader, in drain()
constexpr std::size_t kNewest = std::size_t{1} << 15;  // bytes of the newest lines, kept beside the oldest

enum class Kind { pipe_or_terminal, socket, other };

Kind kind_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return Kind::other;
  if (S_ISSOCK(status.st_mode)) return Kind::socket;
  return S_ISFIFO(status.st_mode) || ::isatty(descriptor) != 0 ? Kind::pipe_or_terminal : Kind::other;
}

bool is_writable(int descriptor, std::chrono::milliseconds wait) {
  struct pollfd output = {descriptor, POLLOUT, 0};
  return ::poll(&output, 1, static_cast<int>(wait.count())) > 0;
}

/// Hands each flush of std::cout on to a QueuedOutput. Several threads may write.
class OutputBuffer final : public std::streambuf {
 public:
  explicit OutputBuffer(QueuedOutput& output) : output_(output) {}

 protected:
  int_type overflow(int_type letter) override {
    if (traits_type::eq_int_type(letter, traits_type::eof())) return traits_type::not_eof(letter);
    const char one = traits_type::to_char_type(letter);
    return xsputn(&one, 1) == 1 ? letter : traits_type::eof();
  }
  std::streamsize xsputn(const char* letters, std::streamsize count) override {
    const std::lock_guard lock(mutex_);
    text_.append(letters, static_cast<std::size_t>(count));
    return count;
  }
  int sync() override {
    const std::lock_guard lock(mutex_);
    const bool written = text_.empty() ? output_.problem() == 0 : output_.write(text_);
    text_.clear();
    return written ? 0 : -1;
  }

 private:
  QueuedOutput& output_;
  std::mutex mutex_;
  std::string text_;
};

/// Never destroyed: threads may print while the process ends.
std::atomic<QueuedOutput*> standard_output = nullptr;

}  // namespace

QueuedOutput::QueuedOutput(int descriptor) : given_(descriptor) {
  if (kind_of(descriptor) != Kind::pipe_or_terminal) return;
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  own_ = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

QueuedOutput::~QueuedOutput() {
  if (own_ >= 0) ::close(own_);
}

/// A pipe or terminal that this user may not open again, and a device: a pipe that is writable accepts PIPE_BUF bytes.
std::int64_t QueuedOutput::write_some(std::string_view bytes) const {
  if (own_ >= 0) return ::write(own_, bytes.data(), bytes.size());
  if (kind_of(given_) == Kind::socket) return ::send(given_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  errno = EAGAIN;
  return is_writable(given_, 0ms) ? ::write(given_, bytes.data(), std::min<std::size_t>(bytes.size(), PIPE_BUF)) : -1;
}

bool QueuedOutput::flush() {
  std::size_t done = 0;
  while (done < kept_.size() && problem_ == 0) {
    const std::int64_t written = write_some(std::string_view(kept_).substr(done));
    if (written > 0) done += static_cast<std::size_t>(written);
    if (written < 0 && errno == EAGAIN) break;
    if (written < 0 && errno != EINTR) problem_ = errno;
  }
  kept_.erase(0, problem_ == 0 ? done : kept_.size());
  if (done > 0) gave_up_ = false;
  if (leaving_out_ && kept_.empty() && problem_ == 0) {
    leaving_out_ = false;
    const std::int64_t lines = left_out_ - std::exchange(left_out_then_, left_out_);
    if (lines > 0) kept_ = "\n... " + std::to_string(lines) + " lines are missing here: nobody read in time\n";
    kept_ += std::exchange(newest_, "");
    flush();
  }
  return done > 0;
}

void QueuedOutput::leave_out(std::string_view bytes) {
  leaving_out_ = true;
  newest_ += bytes;
  if (newest_.size() <= kNewest) return;
  const std::size_t break_at = newest_.find('\n', newest_.size() - kNewest / 2);
  const std::size_t cut = break_at == std::string::npos ? newest_.size() : break_at + 1;
  left_out_ += std::count(newest_.begin(), newest_.begin() + static_cast<std::ptrdiff_t>(cut), '\n');
  newest_.erase(0, cut);
}

bool QueuedOutput::write(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  flush();
  if (problem_ != 0) return false;
  if (leaving_out_ || kept_.size() + bytes.size() > kMostKept) {
    leave_out(bytes);
  } else {
    kept_ += bytes;
    flush();
  }
  return problem_ == 0;
}

bool QueuedOutput::drain(std::chrono::milliseconds patience) {
  const std::unique_lock lock(mutex_, kLock);
  if (!lock.owns_lock()) return false;
  auto last = std::chrono::steady_clock::now();
  while (true) {
    if (flush()) last = std::chrono::steady_clock::now();
    if (kept_.empty()) return problem_ == 0;
    if (gave_up_ || std::chrono::steady_clock::now() - last >= patience) break;
    if (is_writable(descriptor(), kLook)) std::this_thread::sleep_for(1ms);
  }
  gave_up_ = true;
  return false;
}

bool QueuedOutput::is_behind() {
  const std::lock_guard lock(mutex_);
  return !kept_.empty();
}

std::int64_t QueuedOutput::lines_left_out() {
  const std::lock_guard lock(mutex_);
  return left_out_;
}

int QueuedOutput::problem() {
  const std::lock_guard lock(mutex_);
  return problem_;
}

void keep_from_waiting_for_reader() {
  if (standard_output != nullptr || kind_of(STDOUT_FILENO) == Kind::other) return;
  auto* const output = new QueuedOutput(STDOUT_FILENO);
  std::cout.flush();
  std::cout.rdbuf(new OutputBuffer(*output));
  standard_output = output;
}

bool drain_standard_output(std::chrono::milliseconds patience) {
  QueuedOutput* const output = standard_output;
  if (output == nullptr) return true;
  return output->drain(patience);
}

std::int64_t lines_left_out_of_standard_output() {
  QueuedOutput* const output = standard_output;
  return output == nullptr ? 0 : output->lines_left_out();
}

}  // namespace kozero
