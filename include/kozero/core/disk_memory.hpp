// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// disk_memory.hpp: arrays in mapped files, for state that is larger than the memory.
//   DiskMemory     maps a file for each array; users read and write the array like any other
//   PageStream     reads the pages of a cycle of parts ahead of their use, and releases the pages after use
//   release_pages  releases the pages that a pass over such an array read
// A page that is not in memory is read when it is touched: streams and releases affect time and memory, never values.
// The system writes released pages to the disk, and keeps them in its cache while memory is free.
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
  /// Each array is a file in `folder`, whose name is removed at once, so that the file disappears with the process.
  /// `who` ("rank 3") appears in messages.
  DiskMemory(std::string folder, std::string who) : folder_(std::move(folder)), who_(std::move(who)) {}
  ~DiskMemory() override;
  DiskMemory(const DiskMemory&) = delete;
  DiskMemory& operator=(const DiskMemory&) = delete;

  /// Throws Error(deck) unless `folder` is a folder on a disk (not tmpfs) with `bytes` free, in which this process can
  /// make files.
  static void require(const std::string& folder, std::int64_t bytes);

  /// Reserves the disk's blocks where the file system can, so that later writes find room. Throws Error(write) if the
  /// file cannot be reserved or mapped, Error(deck) for a folder in memory or one that takes no files.
  void* share(const std::string& label, std::int64_t bytes) override;
  [[nodiscard]] Kind kind() const override { return Kind::disk; }

 private:
  std::string folder_;
  std::string who_;
};

/// A range of an array's bytes.
struct PageRange {
  const void* first = nullptr;
  std::int64_t bytes = 0;
};

template <class View>
PageRange range_of(const View& values) {
  return {values.data(), static_cast<std::int64_t>(values.extent(0) * sizeof(values.data()[0]))};
}

/// For an array of a DiskMemory: starts to write changed pages to the disk and frees the pages' memory; the values
/// stay. Keeps the last page if the range covers only its beginning. No effect on other memory.
void release_pages(const PageRange& range);
template <class View>
void release_pages(const View& values) {
  release_pages(range_of(values));
}

/// "exp_avg of rank 1 in FOLDER" for an address in an array of a DiskMemory; "" for other memory.
std::string name_on_disk(const void* address);

/// For an array of a DiskMemory: asks the system to read the range, without waiting. No effect on other memory.
void read_ahead(const PageRange& range);

/// For an array of a DiskMemory: returns when the range is in memory. Throws Error(input) if the disk fails to read it.
/// No effect on other memory.
void read_pages(const PageRange& range);

/// Reads the parts of arrays ahead of a cyclic use, such as the optimizer's updates.
///   for each part:  await(); use it; release()
/// One thread reads the parts that follow the part in use, as long as all parts in memory take at most `bytes`. After
/// the last part it reads the next cycle's first parts, while other work goes on. Another thread drops released parts.
class PageStream {
 public:
  /// A part may have ranges of several arrays; ranges outside a DiskMemory are ignored. Two parts may be in memory at a
  /// time even if they take more than `bytes`.
  PageStream(std::vector<std::vector<PageRange>> parts, std::int64_t bytes);
  ~PageStream();
  PageStream(const PageStream&) = delete;
  PageStream& operator=(const PageStream&) = delete;

  /// Returns when the next part of the cycle is in memory. Throws Error(input) if the disk failed to read it.
  void await();
  /// Call after the last use, in this cycle, of the part awaited last.
  void release();

 private:
  void bring_in();
  void drop();
  [[nodiscard]] const std::vector<PageRange>& part(std::int64_t number) const {
    return parts_[static_cast<std::size_t>(number) % parts_.size()];
  }

  std::vector<std::vector<PageRange>> parts_;
  std::int64_t max_parts_ = 0;  // most parts in memory at a time
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t brought_in_ = 0;  // parts since the start, like the two counts below
  std::int64_t released_ = 0;
  std::int64_t dropped_ = 0;  // parts whose memory was freed
  bool ends_ = false;
  std::exception_ptr problem_;
  // Declared last: the threads start after, and are joined before, the members that they use.
  std::thread reader_;
  std::thread dropper_;
};

}  // namespace kozero
