// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// file_faults.cpp: a library to preload: a disk that is full for a while, one that hangs, one without locks.
//   KOZERO_FULL_WHILE      a file; while it is there, write() to a path that ends in KOZERO_FULL_PATH takes 20 bytes and
//                          then fails with ENOSPC
//   KOZERO_SLOW_FSYNC      fsync() of a path that holds this text waits KOZERO_SLOW_SECONDS first
//   KOZERO_NO_LOCKS        set: flock() of a file called lock fails with ENOLCK
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>

namespace {

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string path_of(int file) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), path.data(), path.size() - 1);
  return length < 0 ? "" : std::string(path.data(), static_cast<std::size_t>(length));
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

thread_local bool full = false;  // the first bytes of the line went in

}  // namespace

extern "C" {

// NOLINTBEGIN: the names and types are libc's
ssize_t write(int file, const void* bytes, size_t count) {
  auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  const std::string flag = setting("KOZERO_FULL_WHILE");
  if (flag.empty() || access(flag.c_str(), F_OK) != 0 || !path_of(file).ends_with(setting("KOZERO_FULL_PATH"))) {
    full = false;
    return real(file, bytes, count);
  }
  if (!full && count > 20) {
    full = true;
    return real(file, bytes, 20);
  }
  full = false;
  errno = ENOSPC;
  return -1;
}

int fsync(int file) {
  const std::string slow = setting("KOZERO_SLOW_FSYNC");
  if (!slow.empty() && path_of(file).find(slow) != std::string::npos) {
    sleep(static_cast<unsigned>(std::atoi(setting("KOZERO_SLOW_SECONDS").c_str())));
  }
  return next<int(int)>("fsync")(file);
}

int flock(int file, int operation) {
  if (setting("KOZERO_NO_LOCKS").empty() || !path_of(file).ends_with("/lock")) return next<int(int, int)>("flock")(file, operation);
  errno = ENOLCK;
  return -1;
}
// NOLINTEND

}  // extern "C"
