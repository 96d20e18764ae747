// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// disk_memory.hpp: arrays that lie in a file, for state that is larger than the memory.
//   DiskMemory     maps a file for each array: whoever has the array reads and writes it as any other
//   PageStream     brings the pages of a cycle of parts in ahead of their use, and gives them back after it
//   release_pages  gives back the pages that a pass over such an array brought in
// A page that nobody brought in comes by itself when it is touched, only later: what streams and releases do changes
// the time and the memory taken, never a value. Pages that were given back stay in the system's cache while it has
// room.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <kozero/core/memory_source.hpp>

namespace kozero {

class DiskMemory final : public MemorySource {
 public:
  /// `folder`, or its nearest parent that is there, gets the files; they have no name and end with the process. `who`
  /// ("rank 3") stands in messages. Nothing is made before the first array.
  DiskMemory(std::string folder, std::string who) : folder_(std::move(folder)), who_(std::move(who)) {}
  ~DiskMemory() override;
  DiskMemory(const DiskMemory&) = delete;
  DiskMemory& operator=(const DiskMemory&) = delete;

  /// Reserves the disk's blocks, so that a later write finds room. Throws Error(write) where they cannot be had, and
  /// Error(deck) where the folder lies in a file system that is itself memory (tmpfs).
  void* share(const std::string& label, std::int64_t bytes) override;
  [[nodiscard]] Kind kind() const override { return Kind::disk; }

 private:
  std::string folder_;
  std::string who_;
};

/// Bytes of an array.
struct PageRange {
  const void* first = nullptr;
  std::int64_t bytes = 0;
};

/// Of a DiskMemory's array: starts to write what was changed, and gives the memory back; the values stay. A page that
/// the range holds only the beginning of is left to who uses the rest. Nothing for other memory.
void release_pages(const PageRange& range);
template <class View>
void release_pages(const View& values) {
  release_pages({values.data(), static_cast<std::int64_t>(values.extent(0) * sizeof(values.data()[0]))});
}

/// Of a DiskMemory's array: asks the system to read the range, and does not wait. Nothing for other memory.
void expect_pages(const PageRange& range);

// The parts of the arrays in the order of their use, again and again: an update, the next one.
//   for each part:  await(part); use it; release(part)
// A thread brings in the parts behind the one in use as long as all that is in takes at most `bytes`, so that the first
// parts of the next cycle come in while other work goes on; another one writes what was released.

class PageStream {
 public:
  /// A part may be of several arrays; ranges of other memory than a DiskMemory's are left out. At least two parts are
  /// in at a time.
  PageStream(std::vector<std::vector<PageRange>> parts, std::int64_t bytes);
  ~PageStream();
  PageStream(const PageStream&) = delete;
  PageStream& operator=(const PageStream&) = delete;

  /// Returns when the next part of the cycle is in memory. Throws Error(input) where the disk did not give it.
  void await();
  /// The part awaited last is not used any more in this cycle.
  void release();

 private:
  void bring_in();
  void write_back();
  [[nodiscard]] const std::vector<PageRange>& part(std::int64_t number) const {
    return parts_[static_cast<std::size_t>(number) % parts_.size()];
  }

  std::vector<std::vector<PageRange>> parts_;
  std::int64_t most_ = 0;  // parts that are in at a time
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t brought_in_ = 0;  // parts since the beginning, as below
  std::int64_t released_ = 0;
  std::int64_t written_ = 0;  // given to the disk
  bool ends_ = false;
  std::exception_ptr problem_;
  std::thread reader_;  // behind all that they use
  std::thread writer_;
};

}  // namespace kozero
