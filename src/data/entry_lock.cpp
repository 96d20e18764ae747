// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// entry_lock.cpp: takes the lock, waits for it, and reads who has it.
#include "src/data/entry_lock.hpp"
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include "io/posix/file.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_status.hpp"

namespace kozero::data {

EntryLock::EntryLock(std::string path, const std::string& folder,
                     const std::function<void(const std::string& line)>& say)
    : path_(std::move(path)) {
  constexpr auto kPause = std::chrono::milliseconds(50);
  bool said = false;
  while (!take()) {
    if (!std::exchange(said, true)) say("waiting for the tokens in " + folder + ", which " + holder() + " makes");
    std::this_thread::sleep_for(kPause);
  }
}

EntryLock::~EntryLock() {
  ::unlink(path_.c_str());
  ::close(file_);
}

bool EntryLock::take() {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file_ < 0) throw Error(Failure::write, path_ + ": cannot create: " + io::errno_text());
  is_held_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  const bool waits = !is_held_ && (errno == EWOULDBLOCK || errno == EINTR);
  struct stat locked {
  }, named{};
  if (waits || ::fstat(file_, &locked) != 0 || ::stat(path_.c_str(), &named) != 0 || locked.st_ino != named.st_ino) {
    ::close(file_);
    return false;
  }
  const std::string name = fmt::format("process {} on host {}, since {}\n", ::getpid(), host_name(), io::time_now());
  // On a full disk the lock is held all the same: the text is only for a message.
  if (::ftruncate(file_, 0) == 0) static_cast<void>(!::pwrite(file_, name.data(), name.size(), 0));
  return true;
}

std::string EntryLock::holder() const {
  constexpr std::int64_t kMostBytes = 4096;
  try {
    const std::string name = io::read_whole_file(path_, kMostBytes);
    if (!name.empty()) return name.substr(0, name.find('\n'));
  } catch (const Error&) {  // released meanwhile
  }
  return "another process";
}

}  // namespace kozero::data
