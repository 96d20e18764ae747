// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// member.hpp: one rank's non-blocking communicator. Its start, and every call, is in progress until the state has been
// queried kLooks times. Then the call's work is put on the stream. Before, no other call is accepted.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/distributed/nccl/nccl_connection.hpp"

#include "collective.hpp"

/// Bytes of GPU memory that NCCL would allocate: by a start, and by the first call of each name. An aborted
/// communicator keeps them.
extern "C" std::atomic<std::int64_t> kozero_nccl_mock_memory;

namespace kozero::test {

/// Sets the text that last_error() returns from now on.
distributed::nccl::Result error(distributed::nccl::Result result, const std::string& text);
std::string last_error();

class Member;

struct Call {
  Member* member;
  distributed::nccl::Stream stream;
  std::vector<Part> parts;
  std::string words;
};

class Member {
 public:
  /// Joins the meeting of that name; `fails`: ends in an error once all ranks have joined.
  Member(const std::string& meeting, RankOf rank_of, bool fails);
  /// Waits for the work under way.
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  [[nodiscard]] bool ok() const { return meeting_.ok(); }
  [[nodiscard]] RankOf rank_of() const { return rank_of_; }
  /// Announces a call of this name.
  void connect(const std::string& name);
  /// Makes the call in progress; the next queries of the state continue it.
  distributed::nccl::Result ask(std::optional<Call> call);
  [[nodiscard]] bool in_progress() const { return looks_left_ > 0; }
  distributed::nccl::Result look();
  /// Ends the work under way without waiting for the other ranks.
  void give_up();

 private:
  static constexpr int kLooks = 3;

  static void run(void* call);
  void take(std::int64_t bytes);

  RankOf rank_of_;
  Meeting meeting_;
  bool fails_;
  std::atomic<bool> given_up_ = false;
  std::atomic<int> under_way_ = 0;
  std::atomic<distributed::nccl::Result> error_ = distributed::nccl::kSuccess;
  int looks_left_ = kLooks;
  std::optional<Call> asked_;
  std::set<std::string> names_;  // the names of earlier calls
  std::int64_t memory_ = 0;
};

}  // namespace kozero::test
