// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// disk_memory.cpp: mapped files without names, where in them an address lies, and the two threads of a stream.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <map>
#include <system_error>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>

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

/// All of this process, by address.
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

/// Pages of a mapping; none where `bytes` is 0.
struct Pages {
  std::byte* first = nullptr;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  // in the file
  int file = -1;
  std::string name;
};

enum class Ends { outward, inward };  ///< a page that the range holds in part: taken, or left out at the range's end

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
  return {mapping.first + first, last - first, first, mapping.file, mapping.name};
}

constexpr const char* kAdvice = "; resume from the newest checkpoint with another zero.offload_dir";

std::string& bus_error_text() {
  static std::string text;
  return text;
}

/// A page that is touched and that the disk does not give: the process cannot go on behind that address.
void end_by_bus_error(int /*signal*/) {
  static_cast<void>(write(STDERR_FILENO, bus_error_text().data(), bus_error_text().size()));
  _exit(static_cast<int>(Failure::input));
}

void report_bus_errors(const std::string& who) {
  bus_error_text() = "[" + who + "] error: a page of zero.offload_dir cannot be had (SIGBUS): the disk fails, or its " +
                     "file system is full" + kAdvice + "\n";
  struct sigaction action = {};
  action.sa_handler = end_by_bus_error;
  sigaction(SIGBUS, &action, nullptr);
}

std::string nearest_folder(const std::string& named) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path folder = fs::absolute(named.empty() ? "." : named, ignored).lexically_normal();
  while (!fs::is_directory(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  return folder.string();
}

/// In memory a state would take what it is to save.
void refuse_memory(const std::string& folder) {
  constexpr long kTmpfs = 0x01021994;
  constexpr long kRamfs = 0x858458f6;
  struct statfs of = {};
  if (statfs(folder.c_str(), &of) != 0) return;
  const auto kind = static_cast<long>(of.f_type);
  if (kind != kTmpfs && kind != kRamfs) return;
  throw Error(Failure::deck, "zero.offload_dir: " + folder +
                                 " lies in memory (tmpfs), and what is moved there takes as much as before; name a "
                                 "folder on a disk of the node");
}

std::string mebibytes(std::int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

/// A file of `bytes` whose blocks are reserved and whose name is gone.
int make_file(const std::string& folder, const std::string& what, std::int64_t bytes) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(Failure::write, "zero.offload_dir: " + folder + ": " + mebibytes(bytes) + " for " + what + ": " +
                                    reason + "; give a folder on a larger disk, or use more ranks");
  };
  std::string name = folder + "/.kozero-offload-XXXXXX";
  const int file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) refuse(text_of(errno));
  static_cast<void>(unlink(name.c_str()));
  int problem = fallocate(file, 0, 0, bytes) == 0 ? 0 : errno;
  if (problem == EOPNOTSUPP) {  // a file system that reserves nothing: a full one is met when pages are written
    struct statfs of = {};
    const bool tells = fstatfs(file, &of) == 0;
    const bool full = tells && static_cast<std::int64_t>(of.f_bavail) < bytes / std::max<std::int64_t>(of.f_bsize, 1);
    problem = full ? ENOSPC : ftruncate(file, bytes) == 0 ? 0 : errno;
  }
  if (problem != 0) {
    close(file);
    struct statfs of = {};
    const bool tells = problem == ENOSPC && statfs(folder.c_str(), &of) == 0;
    const auto free = static_cast<std::int64_t>(of.f_bavail) * static_cast<std::int64_t>(of.f_bsize);
    refuse(text_of(problem) + (tells ? " (" + mebibytes(free) + " are free)" : ""));
  }
  return file;
}

}  // namespace

void* DiskMemory::share(const std::string& label, std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  report_bus_errors(who_);
  const std::string folder = nearest_folder(folder_);
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
    munmap(mapping.first, static_cast<std::size_t>(mapping.bytes));
    close(mapping.file);
    each = known.all.erase(each);
  }
}

void release_pages(const PageRange& range) {
  const Pages pages = pages_of(range, Ends::inward);
  if (pages.bytes == 0) return;
  // Without a mapping of their own the pages are the system's cache alone, which it writes and drops as it needs.
  static_cast<void>(madvise(pages.first, static_cast<std::size_t>(pages.bytes), MADV_DONTNEED));
  static_cast<void>(sync_file_range(pages.file, pages.offset, pages.bytes, SYNC_FILE_RANGE_WRITE));
}

void expect_pages(const PageRange& range) {
  const Pages pages = pages_of(range, Ends::outward);
  if (pages.bytes > 0) static_cast<void>(posix_fadvise(pages.file, pages.offset, pages.bytes, POSIX_FADV_WILLNEED));
}

namespace {

/// Returns when the pages are in memory and may be written.
void populate(const PageRange& range) {
  const Pages pages = pages_of(range, Ends::outward);
  if (pages.bytes == 0) return;
  // The kernel reads a long range in large requests when it is told of it first; populating alone would ask for little
  // at a time.
  static_cast<void>(posix_fadvise(pages.file, pages.offset, pages.bytes, POSIX_FADV_WILLNEED));
  if (madvise(pages.first, static_cast<std::size_t>(pages.bytes), MADV_POPULATE_WRITE) == 0) return;
  if (errno == EINVAL) return;  // a kernel before 5.14: pages come when they are touched
  throw Error(Failure::input, pages.name + ": " + (errno == EFAULT ? text_of(EIO) : text_of(errno)) + kAdvice);
}

bool lies_on_disk(const PageRange& range) { return pages_of(range, Ends::outward).bytes > 0; }

}  // namespace

PageStream::PageStream(std::vector<std::vector<PageRange>> parts, std::int64_t bytes) : parts_(std::move(parts)) {
  std::int64_t largest = 1;
  for (auto& part : parts_) {
    std::erase_if(part, [](const PageRange& range) { return !lies_on_disk(range); });
    std::int64_t size = 0;
    for (const PageRange& range : part) size += range.bytes;
    largest = std::max(largest, size);
  }
  if (parts_.empty()) return;
  // The part in use, the one that is being written, and what comes next.
  most_ = std::clamp<std::int64_t>(bytes / largest, 2, std::max<std::int64_t>(2, std::ssize(parts_)));
  reader_ = std::thread([this] { bring_in(); });
  writer_ = std::thread([this] { write_back(); });
}

PageStream::~PageStream() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
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
  for (std::int64_t number = 0;; ++number) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || number < written_ + most_; });
      if (ends_) return;
    }
    std::exception_ptr problem;
    try {
      for (const PageRange& range : part(number)) populate(range);
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

void PageStream::write_back() {
  for (std::int64_t number = 0;; ++number) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || number < released_; });
      if (ends_) return;
    }
    for (const PageRange& range : part(number)) release_pages(range);
    {
      const std::lock_guard lock(mutex_);
      written_ = number + 1;
    }
    changed_.notify_all();
  }
}

}  // namespace kozero
