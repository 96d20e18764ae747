// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// disk_memory.hpp: arrays that lie in a file, for state that is larger than the memory.
//   DiskMemory     maps a file for each array; users read and write the array as any other
//   PageStream     brings in the pages of a cycle of parts ahead of their use, and releases them after it
//   release_pages  releases the pages that a pass over such an array brought in
// A page that is not in memory is read when it is touched: streams and releases affect time and memory, never values.
// The system writes released pages, and keeps them in its cache while it has room.
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
  /// Files are made in `folder` with the first array; their names are removed at once, so that they end with the
  /// process. `who` ("rank 3") stands in messages.
  DiskMemory(std::string folder, std::string who) : folder_(std::move(folder)), who_(std::move(who)) {}
  ~DiskMemory() override;
  DiskMemory(const DiskMemory&) = delete;
  DiskMemory& operator=(const DiskMemory&) = delete;

  /// Throws Error(deck) unless `folder` is one, on a disk (not tmpfs), in which this process can make files, and with
  /// `bytes` free.
  static void require(const std::string& folder, std::int64_t bytes);

  /// Reserves the disk's blocks where the file system can, so that a later write finds room. Throws Error(write) where
  /// they cannot be had, Error(deck) as require().
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

template <class View>
PageRange range_of(const View& values) {
  return {values.data(), static_cast<std::int64_t>(values.extent(0) * sizeof(values.data()[0]))};
}

/// Of a DiskMemory's array: starts to write what was changed and gives the memory back; the values stay. The range's
/// last page stays where the range holds its beginning only. No effect on other memory.
void release_pages(const PageRange& range);
template <class View>
void release_pages(const View& values) {
  release_pages(range_of(values));
}

/// Of a DiskMemory's array: asks the system to read the range. No effect on other memory.
void read_ahead(const PageRange& range);

/// Of a DiskMemory's array: returns when the range can be read. Throws Error(input) where the disk does not give it. No
/// effect on other memory.
void read_pages(const PageRange& range);

// The parts of the arrays in the order of their use, again and again: an update, the next one.
//   for each part:  await(); use it; release()
// One thread brings in the parts after the one in use, as long as all that are in take at most `bytes`: the next
// cycle's first parts come in while other work goes on. Another thread drops what was released.

class PageStream {
 public:
  /// A part may have ranges of several arrays; those of other memory than a DiskMemory's are left out. Two parts may be
  /// in at a time even where they take more than `bytes`.
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
  void drop();
  [[nodiscard]] const std::vector<PageRange>& part(std::int64_t number) const {
    return parts_[static_cast<std::size_t>(number) % parts_.size()];
  }

  std::vector<std::vector<PageRange>> parts_;
  std::int64_t max_parts_ = 0;  // in memory at a time
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t brought_in_ = 0;  // parts since the beginning, as below
  std::int64_t released_ = 0;
  std::int64_t dropped_ = 0;  // their memory was given back
  bool ends_ = false;
  std::exception_ptr problem_;
  // Declared last: started after, and joined before, what they use.
  std::thread reader_;
  std::thread dropper_;
};

}  // namespace kozero
