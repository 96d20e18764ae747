// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// meeting.hpp: processes of one node that exchange buffers in shared memory, one buffer of each rank at a time.
//   fill own()  ->  meet()  ->  read of(r) of every rank  ->  fill own() ...
// A rank has two buffers, used in turn. Before a rank fills a buffer again it has met the others once more, and all had
// read the buffer before that meeting.
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

  /// Makes the memory of a meeting that `name` names from now on; false where that fails.
  static bool create(const std::string& name);

  /// Comes to the meeting of that name, and does not wait; see ok().
  Meeting(const std::string& name, int rank, int size);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  [[nodiscard]] bool ok() const { return board_ != nullptr; }
  /// Before that nobody meets.
  [[nodiscard]] bool all_came() const;

  [[nodiscard]] char* own() { return buffer(rank_, filled_); }
  /// False where `given_up` became true before all had come.
  bool meet(const std::atomic<bool>& given_up);
  /// What rank r filled before the last meeting.
  [[nodiscard]] const char* of(int r) const { return buffer(r, filled_ - 1); }

 private:
  struct Board;
  [[nodiscard]] char* buffer(int r, std::uint64_t number) const;

  std::string name_;
  int rank_;
  int size_;
  Board* board_ = nullptr;
  std::uint64_t filled_ = 0;  // meetings there were
};

}  // namespace kozero::test
