// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// failing_calls.cpp: a library to preload. It counts calls that change files; one of them fails, or kills its process.
//   KOZERO_CALLS_UNDER   counts calls on paths that contain this text and, after the first, fsync of its folder
//   KOZERO_CALLS_LOG     a file to which each counted call is appended: "number call path"; its name ends in ".RANK"
//   KOZERO_CALLS_AT      the number of the affected call, from 1; KOZERO_CALLS_RANK: its rank
//   KOZERO_CALLS_DO      "kill": SIGKILL to this rank; "kill all": to all processes of its launcher; "stop": SIGSTOP to
//                        this rank; "sleep N": the call takes N seconds longer; or an errno with which the call fails
//   KOZERO_STOP_AT       "N": SIGSTOP to the rank of KOZERO_CALLS_RANK at its N-th MPI_Iallgather or
//                        MPI_Iallreduce, which are control traffic; or "MPI_Finalize": before that call
//   KOZERO_FREE_BLOCKS   the number of free blocks that statvfs reports, as if other programs then used the disk
//   KOZERO_MPI_FAILS     "MPI_Comm_split_type": that call fails on the rank of KOZERO_CALLS_RANK
//   KOZERO_MPI_FUNNELED  "all", or a rank, on which MPI_Init_thread provides at most MPI_THREAD_FUNNELED
// Opening for reading, and closing such a file, is not counted, since it changes no file.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::atomic<int> calls{0};

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string rank() {
  for (const char* name : {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (!setting(name).empty()) return setting(name);
  }
  return "0";
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string path_of(int file) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), path.data(), path.size() - 1);
  return length < 0 ? "" : std::string(path.data(), static_cast<std::size_t>(length));
}

void append(const std::string& name, const std::string& line) {
  const auto file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, name.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644));
  static_cast<void>(syscall(SYS_write, file, line.data(), line.size()));
  syscall(SYS_close, file);
}

/// The launcher's other processes first, then this one.
void kill_siblings() {
  const std::string list = "/proc/" + std::to_string(getppid()) + "/task/" + std::to_string(getppid()) + "/children";
  std::array<char, 4096> text{};
  const auto file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, list.c_str(), O_RDONLY, 0));
  static_cast<void>(syscall(SYS_read, file, text.data(), text.size() - 1));
  char* rest = text.data();
  for (long child = std::strtol(rest, &rest, 10); child > 0; child = std::strtol(rest, &rest, 10)) {
    if (child != getpid()) kill(static_cast<pid_t>(child), SIGKILL);
  }
}

/// A path through a descriptor of this process, such as "/proc/self/fd/7/state.h5", with the folder's name instead.
std::string without_descriptor(const std::string& path) {
  const std::string begin = "/proc/self/fd/";
  if (path.rfind(begin, 0) != 0) return path;
  char* rest = nullptr;
  const auto file = static_cast<int>(std::strtol(path.c_str() + begin.size(), &rest, 10));
  return path_of(file) + rest;
}

/// Counts the call. Returns true, with errno set, if it must fail.
bool fails(const char* call, const std::string& given) {
  const std::string path = without_descriptor(given);
  const std::string under = setting("KOZERO_CALLS_UNDER");
  const bool is_parent = path + "/" == under.substr(0, under.find_last_of('/') + 1) && std::strcmp(call, "fsync") == 0;
  if (under.empty() || (path.find(under) == std::string::npos && (!is_parent || calls == 0))) return false;
  const int number = ++calls;
  const std::string log = setting("KOZERO_CALLS_LOG");
  if (!log.empty()) append(log + "." + rank(), std::to_string(number) + " " + call + " " + path + "\n");
  if (std::to_string(number) != setting("KOZERO_CALLS_AT") || rank() != setting("KOZERO_CALLS_RANK")) return false;
  const std::string action = setting("KOZERO_CALLS_DO");
  if (action == "kill all") kill_siblings();
  if (action.rfind("kill", 0) == 0) kill(getpid(), SIGKILL);
  if (action == "stop") kill(getpid(), SIGSTOP);
  if (action.rfind("sleep ", 0) == 0) sleep(static_cast<unsigned>(std::atoi(action.c_str() + 6)));
  if (action == "stop" || action.rfind("sleep ", 0) == 0) return false;
  errno = std::atoi(action.c_str());
  return true;
}

/// Stops this rank if KOZERO_STOP_AT names the call.
void stop_at(const std::string& call) {
  if (setting("KOZERO_STOP_AT") == call && rank() == setting("KOZERO_CALLS_RANK")) kill(getpid(), SIGSTOP);
}

bool fails(const char* call, int file) { return fails(call, path_of(file)); }

bool writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

template <class Open, class... Folder>
int open_as(const char* name, const char* path, int flags, mode_t mode, Folder... folder) {
  if (writes(flags) && fails("open", path)) return -1;
  return next<Open>(name)(folder..., path, flags, mode);
}

mode_t mode_after(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

}  // namespace

using Open = int(const char*, int, ...);
using OpenAt = int(int, const char*, int, ...);

extern "C" {

// NOLINTBEGIN: the names and types are libc's
#define KOZERO_OPEN(name)                             \
  int name(const char* path, int flags, ...) {        \
    va_list arguments;                                \
    va_start(arguments, flags);                       \
    const mode_t mode = mode_after(flags, arguments); \
    va_end(arguments);                                \
    return open_as<Open>(#name, path, flags, mode);   \
  }
#define KOZERO_OPENAT(name)                                   \
  int name(int folder, const char* path, int flags, ...) {    \
    va_list arguments;                                        \
    va_start(arguments, flags);                               \
    const mode_t mode = mode_after(flags, arguments);         \
    va_end(arguments);                                        \
    return open_as<OpenAt>(#name, path, flags, mode, folder); \
  }
KOZERO_OPEN(open)
KOZERO_OPEN(open64)
KOZERO_OPENAT(openat)
KOZERO_OPENAT(openat64)

ssize_t write(int file, const void* bytes, size_t count) {
  return fails("write", file) ? -1 : next<decltype(write)>("write")(file, bytes, count);
}
ssize_t writev(int file, const struct iovec* parts, int count) {
  return fails("write", file) ? -1 : next<decltype(writev)>("writev")(file, parts, count);
}
ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return fails("write", file) ? -1 : next<decltype(pwrite)>("pwrite")(file, bytes, count, offset);
}
ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  return fails("write", file) ? -1 : next<decltype(pwrite64)>("pwrite64")(file, bytes, count, offset);
}
size_t fwrite(const void* bytes, size_t size, size_t count, FILE* file) {
  return fails("write", fileno(file))
             ? 0
             : next<size_t(const void*, size_t, size_t, FILE*)>("fwrite")(bytes, size, count, file);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return fails("memfd_create", std::string("/memfd:") + name)
             ? -1
             : next<int(const char*, unsigned)>("memfd_create")(name, flags);
}
int fsync(int file) { return fails("fsync", file) ? -1 : next<decltype(fsync)>("fsync")(file); }
int fdatasync(int file) { return fails("fsync", file) ? -1 : next<decltype(fdatasync)>("fdatasync")(file); }
int ftruncate(int file, off_t size) noexcept {
  return fails("ftruncate", file) ? -1 : next<int(int, off_t)>("ftruncate")(file, size);
}
int ftruncate64(int file, off64_t size) noexcept {
  return fails("ftruncate", file) ? -1 : next<int(int, off64_t)>("ftruncate64")(file, size);
}
int close(int file) {
  const bool failed = writes(fcntl(file, F_GETFL)) && fails("close", file);
  const int why = errno;
  const int status = next<decltype(close)>("close")(file);
  if (failed) errno = why;
  return failed ? -1 : status;
}
int rename(const char* from, const char* to) noexcept {
  return fails("rename", from) ? -1 : next<int(const char*, const char*)>("rename")(from, to);
}
int unlink(const char* path) noexcept { return fails("unlink", path) ? -1 : next<int(const char*)>("unlink")(path); }
int remove(const char* path) noexcept { return fails("unlink", path) ? -1 : next<int(const char*)>("remove")(path); }
int rmdir(const char* path) noexcept { return fails("unlink", path) ? -1 : next<int(const char*)>("rmdir")(path); }
int unlinkat(int folder, const char* path, int flags) noexcept {
  const std::string whole = *path == '/' || folder == AT_FDCWD ? path : path_of(folder) + "/" + path;
  return fails("unlink", whole) ? -1 : next<int(int, const char*, int)>("unlinkat")(folder, path, flags);
}
int mkdir(const char* path, mode_t mode) noexcept {
  return fails("mkdir", path) ? -1 : next<int(const char*, mode_t)>("mkdir")(path, mode);
}
int statvfs(const char* path, struct statvfs* status) noexcept {
  const int result = next<int(const char*, struct statvfs*)>("statvfs")(path, status);
  if (!setting("KOZERO_FREE_BLOCKS").empty()) {
    status->f_bavail = std::strtoull(setting("KOZERO_FREE_BLOCKS").c_str(), nullptr, 10);
  }
  return result;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int funneled = 1;
  const std::string limited = setting("KOZERO_MPI_FUNNELED");
  const bool limits = limited == "all" || limited == rank();
  return next<int(int*, char***, int, int*)>("MPI_Init_thread")(argc, argv, limits ? funneled : required, provided);
}

std::atomic<int> num_agreements{0};
int MPI_Iallreduce(const void* from, void* to, int count, void* type, void* operation, void* comm, void* request) {
  stop_at(std::to_string(++num_agreements));
  return next<decltype(MPI_Iallreduce)>("MPI_Iallreduce")(from, to, count, type, operation, comm, request);
}
int MPI_Iallgather(const void* from, int from_count, void* from_type, void* to, int to_count, void* to_type, void* comm,
                   void* request) {
  stop_at(std::to_string(++num_agreements));
  return next<decltype(MPI_Iallgather)>("MPI_Iallgather")(from, from_count, from_type, to, to_count, to_type, comm,
                                                          request);
}
int MPI_Comm_split_type(void* comm, int type, int key, void* info, void* made) {
  constexpr int kOtherError = 15;  // MPI_ERR_OTHER of MPICH
  const bool fails = setting("KOZERO_MPI_FAILS") == "MPI_Comm_split_type" && rank() == setting("KOZERO_CALLS_RANK");
  if (fails) return kOtherError;
  return next<decltype(MPI_Comm_split_type)>("MPI_Comm_split_type")(comm, type, key, info, made);
}
int MPI_Finalize() {
  stop_at("MPI_Finalize");
  return next<decltype(MPI_Finalize)>("MPI_Finalize")();
}
// NOLINTEND
}
