// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// meeting.hpp: processes of one node that exchange buffers in shared memory, one buffer of each rank at a time.
//   fill own()  ->  meet()  ->  read of(r) of every rank  ->  fill own() ...
// A rank has two buffers, used in turn. Before a rank fills a buffer again, one more meeting has taken place, and all
// ranks had read the buffer before that meeting.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kozero::test {

class Meeting {
 public:
  static constexpr int kMostRanks = 16;
  static constexpr std::size_t kBytes = std::size_t{256} << 10;  // of a buffer

  /// Makes the memory of a new meeting with this name. Returns false if that fails.
  static bool create(const std::string& name);

  /// Joins the meeting of that name without waiting; see ok().
  Meeting(const std::string& name, int rank, int size);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  [[nodiscard]] bool ok() const { return board_ != nullptr; }
  /// No rank may meet before this is true.
  [[nodiscard]] bool all_came() const;

  [[nodiscard]] char* own() { return buffer(rank_, filled_); }
  /// Returns false if `given_up` became true before all ranks arrived.
  bool meet(const std::atomic<bool>& given_up);
  /// The buffer that rank r filled before the last meeting.
  [[nodiscard]] const char* of(int r) const { return buffer(r, filled_ - 1); }

 private:
  struct Board;
  [[nodiscard]] char* buffer(int r, std::uint64_t number) const;

  std::string name_;
  int rank_;
  int size_;
  Board* board_ = nullptr;
  std::uint64_t filled_ = 0;  // number of meetings so far
};

}  // namespace kozero::test
