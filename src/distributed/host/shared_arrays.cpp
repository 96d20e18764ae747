// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shared_arrays.cpp: creates files in a tmpfs, allocates their pages, maps and unlinks them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <kozero/core/views.hpp>
#include <kozero/distributed/agreement.hpp>
#include "src/distributed/host/shared_arrays.hpp"

namespace kozero::distributed {
namespace {

constexpr std::int64_t kPage = 4096;

/// Pages for the array and one page behind its last byte, also for an array of 0 bytes.
std::int64_t room_for(std::int64_t bytes) { return (bytes / kPage + 2) * kPage; }

/// Allocates the pages of `room` bytes. Each thread allocates the pages that it will touch first in a statically
/// scheduled loop, so that on NUMA machines a page is in the memory of that thread's node.
bool take_pages(int file, std::int64_t room) {
  const int threads = Host().concurrency();
  const std::int64_t pages = room / kPage;
  int refused = 0;
  Kokkos::parallel_reduce(
      "kozero::distributed::take_pages", Kokkos::RangePolicy<Host, Kokkos::Schedule<Kokkos::Static>>(0, threads),
      [=](const int thread, int& sum) {
        const std::int64_t first = pages * thread / threads;
        const std::int64_t end = pages * (thread + 1) / threads;
        int status = EINTR;
        while (first < end && status == EINTR) status = posix_fallocate(file, first * kPage, (end - first) * kPage);
        sum += first < end && status != 0 ? 1 : 0;
      },
      refused);
  return refused == 0;
}

/// A new file; the destructor removes its name.
class NewFile {
 public:
  NewFile(const std::string& folder, std::int64_t room) : path_(folder + "/kozero-XXXXXX") {
    const int file = mkostemp(path_.data(), O_CLOEXEC);
    if (file < 0) path_.clear();
    if (file < 0) return;
    const bool taken = take_pages(file, room);
    close(file);
    if (!taken) remove();
  }
  ~NewFile() { remove(); }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// "" if there was no room for the file.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void remove() {
    if (!path_.empty()) unlink(path_.c_str());
    path_.clear();
  }

  std::string path_;
};

char* mapped(const std::string& path, std::int64_t room) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* begin = mmap(nullptr, static_cast<std::size_t>(room), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return begin == MAP_FAILED ? nullptr : static_cast<char*>(begin);
}

}  // namespace

SharedArrays::~SharedArrays() {
  for (auto& array : arrays_) unmap(array);
}

void SharedArrays::unmap(Array& array) {
  for (const auto& mapping : array.of_rank) munmap(mapping.begin, static_cast<std::size_t>(mapping.bytes));
  array.of_rank.clear();
}

bool SharedArrays::map_all(const std::vector<std::string>& files, const std::vector<std::int64_t>& rooms,
                           Array& array) const {
  for (std::size_t r = 0; r < files.size(); ++r) {
    char* begin = files[r].empty() ? nullptr : mapped(files[r], rooms[r]);
    if (begin == nullptr) return false;
    array.of_rank.push_back({begin, rooms[r]});
  }
  return true;
}

void* SharedArrays::add(std::int64_t bytes) {
  Array array;
  array.bytes = bytes;
  const std::int64_t room = room_for(bytes);
  const NewFile file(folder_, room);
  const auto rooms = from_all_ranks(comm_, room);
  const bool mine = map_all(gather_text(comm_, file.path()), rooms, array);
  if (!on_all_ranks(comm_, mine)) {
    unmap(array);
    return nullptr;
  }
  arrays_.push_back(std::move(array));
  return arrays_.back().of_rank[static_cast<std::size_t>(comm_.rank())].begin;
}

void SharedArrays::remove_last() {
  unmap(arrays_.back());
  arrays_.pop_back();
}

SharedArrays::Location SharedArrays::location_of(const void* pointer) const {
  const auto* byte = static_cast<const char*>(pointer);
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const Array& array = arrays_[i];
    const char* own = array.of_rank[static_cast<std::size_t>(comm_.rank())].begin;
    if (byte >= own && byte <= own + array.bytes) return {static_cast<std::int64_t>(i), byte - own};
  }
  return {};
}

char* SharedArrays::at(int rank, Location location) const {
  return arrays_[static_cast<std::size_t>(location.array)].of_rank[static_cast<std::size_t>(rank)].begin +
         location.offset;
}

std::int64_t SharedArrays::bytes() const {
  std::int64_t sum = 0;
  for (const auto& array : arrays_) sum += array.bytes;
  return sum;
}

}  // namespace kozero::distributed
