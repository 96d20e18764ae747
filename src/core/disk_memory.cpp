// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// disk_memory.cpp: mapped files, addresses in them, errors of their disk, and the two threads of a PageStream.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>

#if !defined(MADV_POPULATE_READ)  // headers before Linux 5.14
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace kozero {
namespace {

/// A mapped file.
struct Mapping {
  std::byte* first = nullptr;
  std::int64_t bytes = 0;  // whole pages
  int file = -1;
  std::string name;  // "exp_avg of rank 1 in FOLDER"
  const DiskMemory* owner = nullptr;
};

/// All mappings of this process, by address.
struct Mappings {
  std::mutex mutex;
  std::map<const std::byte*, Mapping> all;
};

Mappings& mappings() {
  static Mappings here;
  return here;
}

std::int64_t page_bytes() {
  static const std::int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

std::string text_of(int problem) { return std::error_code(problem, std::generic_category()).message(); }

/// Pages of a mapping; none if `bytes` is 0.
struct Pages {
  std::byte* first = nullptr;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  // in the file
  int file = -1;
};

enum class Ends { outward, inward };  ///< a page partly in the range: included, or left out

Pages pages_of(const PageRange& range, Ends ends) {
  Mappings& known = mappings();
  const std::lock_guard lock(known.mutex);
  const auto* const address = static_cast<const std::byte*>(range.first);
  const auto after = known.all.upper_bound(address);
  if (after == known.all.begin() || range.bytes <= 0) return {};
  const Mapping& mapping = std::prev(after)->second;
  const std::int64_t begin = address - mapping.first;
  if (begin >= mapping.bytes) return {};
  const std::int64_t page = page_bytes();
  const std::int64_t end = std::min(begin + range.bytes, mapping.bytes);
  const std::int64_t first = begin / page * page;
  const std::int64_t last = (ends == Ends::outward ? end + page - 1 : end) / page * page;
  if (last <= first) return {};
  return {mapping.first + first, last - first, first, mapping.file};
}

constexpr const char* kAdvice = "; resume from the newest checkpoint with another zero.offload_dir";

/// Data of the signal handler: addresses, and texts made beforehand.
struct BusErrors {
  struct Interval {
    std::atomic<std::uintptr_t> first{0}, end{0};
  };
  std::array<Interval, 64> mapped;
  std::string text;
  struct sigaction before = {};
};

BusErrors& bus_errors() {
  static BusErrors here;
  return here;
}

/// Ends the process if the disk failed to read a touched page of our mappings. Other addresses are left to the previous
/// handler.
void end_by_bus_error(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  BusErrors& errors = bus_errors();
  for (const auto& interval : errors.mapped) {
    if (address < interval.first || address >= interval.end) continue;
    static_cast<void>(write(STDERR_FILENO, errors.text.data(), errors.text.size()));
    _exit(static_cast<int>(Failure::input));
  }
  sigaction(SIGBUS, &errors.before, nullptr);  // the access is repeated, and the previous handler runs
}

/// From now on a bus error in this range is reported with `who`. A full table ignores further mappings.
void report_bus_errors(const std::string& who, const void* first, std::int64_t bytes) {
  BusErrors& errors = bus_errors();
  if (errors.text.empty()) {
    struct sigaction action = {};
    action.sa_sigaction = end_by_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGBUS, &action, &errors.before);
  }
  errors.text = "[" + who + "] error: a page of zero.offload_dir cannot be had (SIGBUS): the disk fails, or its file " +
                "system is full" + kAdvice + "\n";
  for (auto& interval : errors.mapped) {
    if (interval.end != 0) continue;
    interval.first = reinterpret_cast<std::uintptr_t>(first);
    interval.end = interval.first + static_cast<std::uintptr_t>(bytes);
    return;
  }
}

void forget_bus_errors(const void* first) {
  for (auto& interval : bus_errors().mapped) {
    if (interval.first == reinterpret_cast<std::uintptr_t>(first)) interval.end = 0;
  }
}

[[noreturn]] void refuse_folder(const std::string& folder, const std::string& reason) {
  throw Error(Failure::deck, "zero.offload_dir = \"" + folder + "\": " + reason);
}

std::string mebibytes(std::int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

/// Free bytes; the largest number if the file system does not report them.
std::int64_t free_bytes(const std::string& folder) {
  struct statvfs of = {};
  if (statvfs(folder.c_str(), &of) != 0 || of.f_blocks == 0) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(of.f_bavail) * static_cast<std::int64_t>(of.f_frsize);
}

/// Rejects a folder in memory, which would use the memory that offloading is to save.
void refuse_memory(const std::string& folder) {
  constexpr long kTmpfs = 0x01021994;
  constexpr long kRamfs = 0x858458f6;
  struct statfs of = {};
  if (statfs(folder.c_str(), &of) != 0) return;
  const auto kind = static_cast<long>(of.f_type);
  if (kind != kTmpfs && kind != kRamfs) return;
  refuse_folder(folder,
                "it lies in memory (tmpfs), and what is moved there takes as much as before; accepted are folders "
                "on a disk of the node");
}

/// An empty file in the folder, whose name is removed. Below 0, with errno, if it cannot be created.
int nameless_file(const std::string& folder) {
  std::string name = folder + "/.kozero-offload-XXXXXX";
  const int file = mkostemp(name.data(), O_CLOEXEC);
  if (file >= 0) static_cast<void>(unlink(name.c_str()));
  return file;
}

/// A file of `bytes` whose blocks are reserved and whose name is removed.
int make_file(const std::string& folder, const std::string& what, std::int64_t bytes) {
  const int file = nameless_file(folder);
  if (file < 0) refuse_folder(folder, "no file can be made there: " + text_of(errno));
  int problem = EINTR;
  while (problem == EINTR) problem = fallocate(file, 0, 0, bytes) == 0 ? 0 : errno;
  if (problem == EOPNOTSUPP) {  // the file system cannot reserve: if full, writing pages fails
    problem = free_bytes(folder) < bytes ? ENOSPC : ftruncate(file, bytes) == 0 ? 0 : errno;
  }
  if (problem == 0) return file;
  close(file);
  throw Error(Failure::write, "zero.offload_dir = \"" + folder + "\": " + mebibytes(bytes) + " for " + what + ": " +
                                  text_of(problem) + " (" + mebibytes(free_bytes(folder)) +
                                  " are free); give a folder on a larger disk, or use more ranks");
}

/// Asks in small requests, since the kernel cuts a longer one to its read-ahead window and drops the rest.
void ask_for(const Pages& pages) {
  constexpr std::int64_t kRequest = std::int64_t{128} << 10;
  for (std::int64_t at = 0; at < pages.bytes; at += kRequest) {
    static_cast<void>(
        posix_fadvise(pages.file, pages.offset + at, std::min(kRequest, pages.bytes - at), POSIX_FADV_WILLNEED));
  }
}

/// Returns when the pages are in memory, for MADV_POPULATE_READ or _WRITE.
void populate(const PageRange& range, int how) {
  const Pages pages = pages_of(range, Ends::outward);
  if (pages.bytes == 0) return;
  ask_for(pages);
  if (madvise(pages.first, static_cast<std::size_t>(pages.bytes), how) == 0) return;
  if (errno == EINVAL) return;  // a kernel before 5.14: pages are read when touched
  throw Error(Failure::input,
              name_on_disk(pages.first) + ": " + (errno == EFAULT ? text_of(EIO) : text_of(errno)) + kAdvice);
}

}  // namespace

void DiskMemory::require(const std::string& folder, std::int64_t bytes) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    refuse_folder(folder, "no such folder here; make it on each node, or name another one");
  }
  refuse_memory(folder);
  const int file = nameless_file(folder);
  if (file < 0) refuse_folder(folder, "no file can be made there: " + text_of(errno));
  close(file);
  const std::int64_t free = free_bytes(folder);
  if (free >= bytes) return;
  refuse_folder(folder, "state of this node's ranks and a save take " + mebibytes(bytes) + " and " + mebibytes(free) +
                            " are free; give a folder on a larger disk, or use more nodes");
}

void* DiskMemory::share(const std::string& label, std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  const std::string& folder = folder_;
  refuse_memory(folder);
  const std::int64_t page = page_bytes();
  const std::int64_t whole = (bytes + page - 1) / page * page;
  const std::string what = label + " of " + who_;
  const int file = make_file(folder, what, whole);
  void* memory = mmap(nullptr, static_cast<std::size_t>(whole), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    const int problem = errno;
    close(file);
    throw Error(Failure::write, "zero.offload_dir: " + folder + ": " + what + " cannot be mapped: " + text_of(problem));
  }
  Mappings& known = mappings();
  const std::lock_guard lock(known.mutex);
  auto* const first = static_cast<std::byte*>(memory);
  report_bus_errors(who_, first, whole);
  known.all[first] = {first, whole, file, what + " in " + folder, this};
  return memory;
}

DiskMemory::~DiskMemory() {
  Mappings& known = mappings();
  const std::lock_guard lock(known.mutex);
  for (auto each = known.all.begin(); each != known.all.end();) {
    const Mapping& mapping = each->second;
    if (mapping.owner != this) {
      ++each;
      continue;
    }
    forget_bus_errors(mapping.first);
    munmap(mapping.first, static_cast<std::size_t>(mapping.bytes));
    close(mapping.file);
    each = known.all.erase(each);
  }
}

void release_pages(const PageRange& range) {
  const Pages pages = pages_of(range, Ends::inward);
  if (pages.bytes == 0) return;
  // Unmapped pages are only in the system's cache, which the system writes and drops as needed.
  static_cast<void>(madvise(pages.first, static_cast<std::size_t>(pages.bytes), MADV_DONTNEED));
  static_cast<void>(sync_file_range(pages.file, pages.offset, pages.bytes, SYNC_FILE_RANGE_WRITE));
}

std::string name_on_disk(const void* address) {
  Mappings& known = mappings();
  const std::lock_guard lock(known.mutex);
  const auto* const byte = static_cast<const std::byte*>(address);
  const auto after = known.all.upper_bound(byte);
  if (after == known.all.begin()) return "";
  const Mapping& mapping = std::prev(after)->second;
  return byte - mapping.first < mapping.bytes ? mapping.name : "";
}

void read_ahead(const PageRange& range) { ask_for(pages_of(range, Ends::outward)); }

void read_pages(const PageRange& range) { populate(range, MADV_POPULATE_READ); }

PageStream::PageStream(std::vector<std::vector<PageRange>> parts, std::int64_t bytes) : parts_(std::move(parts)) {
  std::int64_t largest = 1;
  for (auto& part : parts_) {
    std::int64_t size = 0;
    std::erase_if(part, [&](const PageRange& range) {
      const std::int64_t whole = pages_of(range, Ends::outward).bytes;
      size += whole;
      return whole == 0;
    });
    largest = std::max(largest, size);
  }
  if (parts_.empty()) return;
  max_parts_ = std::min(std::max<std::int64_t>(bytes / largest, 2), std::ssize(parts_));
  reader_ = std::thread([this] { bring_in(); });
  dropper_ = std::thread([this] { drop(); });
}

PageStream::~PageStream() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
  if (dropper_.joinable()) dropper_.join();
}

void PageStream::await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return problem_ || brought_in_ > released_; });
  if (problem_) std::rethrow_exception(problem_);
}

void PageStream::release() {
  {
    const std::lock_guard lock(mutex_);
    ++released_;
  }
  changed_.notify_all();
}

void PageStream::bring_in() {
  run_on_any_cpu();
  for (std::int64_t number = 0;; ++number) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || number < dropped_ + max_parts_; });
      if (ends_) return;
    }
    std::exception_ptr problem;
    try {
      for (const PageRange& range : part(number)) populate(range, MADV_POPULATE_WRITE);
    } catch (...) {
      problem = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      brought_in_ = number + 1;
      problem_ = problem;
    }
    changed_.notify_all();
    if (problem) return;
  }
}

void PageStream::drop() {
  run_on_any_cpu();
  for (std::int64_t number = 0;; ++number) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || number < released_; });
      if (ends_) return;
    }
    for (const PageRange& range : part(number)) release_pages(range);
    {
      const std::lock_guard lock(mutex_);
      dropped_ = number + 1;
    }
    changed_.notify_all();
  }
}

}  // namespace kozero
