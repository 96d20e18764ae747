// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// file_faults.cpp: a library to preload that simulates faults: a disk that is full for a while, that hangs, or that has
// no locks; a trainer that removes a checkpoint while it is read; damaged memory; MPI that must not be used.
//   KOZERO_FULL_WHILE      a file; while it exists, write() to a path that ends in KOZERO_FULL_PATH writes 20 bytes,
//                          then fails with ENOSPC
//   KOZERO_SLOW_FSYNC      fsync() of a path with this text first waits KOZERO_SLOW_SECONDS
//   KOZERO_NO_LOCKS        set: flock() of a file called lock fails with ENOLCK
//   KOZERO_REMOVE_AT       "N PATH": before the N-th open() of a path that ends in PATH its folder is renamed as if it
//                          were being removed
//   KOZERO_DAMAGE_AT       fsync() of a path with this text damages the heap, on rank KOZERO_DAMAGE_RANK
//   KOZERO_NO_MPI          set: MPI_Init_thread() ends the process with status 99
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
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

thread_local bool full = false;  // the first bytes of the line were written

void remove_folder_of(const std::string& path) {
  static std::atomic<int> opens = 0;
  const std::string when = setting("KOZERO_REMOVE_AT");
  if (when.empty() || !path.ends_with(when.substr(when.find(' ') + 1))) return;
  if (++opens != std::atoi(when.c_str())) return;
  const std::string folder = path.substr(0, path.find_last_of('/'));
  static_cast<void>(std::rename(folder.c_str(), (folder + ".partial").c_str()));
}

/// Frees memory twice, which the C library detects: it aborts.
void damage_heap() {
  const char* rank = std::getenv("PMI_RANK");
  if (setting("KOZERO_DAMAGE_RANK") != (rank == nullptr ? "0" : rank)) return;
  void* volatile memory = std::malloc(24);
  std::free(memory);
  std::free(memory);
}

template <class Function>
int open_as(const char* name, const char* path, int flags, va_list arguments) {
  remove_folder_of(path);
  const mode_t mode = (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
  return next<Function>(name)(path, flags, mode);
}

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

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int file = open_as<int(const char*, int, ...)>("open", path, flags, arguments);
  va_end(arguments);
  return file;
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int file = open_as<int(const char*, int, ...)>("open64", path, flags, arguments);
  va_end(arguments);
  return file;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  if (!setting("KOZERO_NO_MPI").empty()) _exit(99);
  return next<int(int*, char***, int, int*)>("MPI_Init_thread")(argc, argv, required, provided);
}

int fsync(int file) {
  const std::string damaged = setting("KOZERO_DAMAGE_AT");
  if (!damaged.empty() && path_of(file).find(damaged) != std::string::npos) damage_heap();
  const std::string slow = setting("KOZERO_SLOW_FSYNC");
  if (!slow.empty() && path_of(file).find(slow) != std::string::npos) {
    sleep(static_cast<unsigned>(std::atoi(setting("KOZERO_SLOW_SECONDS").c_str())));
  }
  return next<int(int)>("fsync")(file);
}

int flock(int file, int operation) {
  if (setting("KOZERO_NO_LOCKS").empty() || !path_of(file).ends_with("/lock"))
    return next<int(int, int)>("flock")(file, operation);
  errno = ENOLCK;
  return -1;
}
// NOLINTEND

}  // extern "C"
