// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_connection.hpp: NCCL's communicator from its start to its end, which no lost rank can hold up.
// It is of NCCL's non-blocking kind: a call that takes long returns kInProgress and goes on in a thread of NCCL's, and
// state() says when it is over. Until then NCCL takes no other call,
// and what the call puts on the stream may not be there yet.
//   ask  ->  settle: look at state() until it is no longer kInProgress, for timeout_s at most  ->  ask ...
// NCCL itself does not guard state() against a call in another thread, so all go by one lock.
#pragma once
#include <atomic>
#include <mutex>

#include <kozero/dist/nccl_calls.hpp>

#include "patience.hpp"

namespace kozero::dist {

class NcclConnection {
 public:
  /// Nothing is asked for yet.
  explicit NcclConnection(const nccl::Calls& calls) : nccl_(calls) {}
  /// Aborts what was not closed.
  ~NcclConnection() { abort(); }
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  /// Asks for a communicator of the ranks that pass `id`.
  nccl::Result open(int rank, int size, const nccl::UniqueId& id);
  [[nodiscard]] nccl::Comm comm() const { return comm_; }

  /// Held around calls of NCCL: it is not aborted between two of a group.
  [[nodiscard]] std::timed_mutex& calls() { return in_call_; }
  /// What became of the last call, or an asynchronous error. Outside of calls();
  /// kInProgress too while another thread calls.
  nccl::Result state();
  /// kSuccess, or what ended the wait for it: kInProgress where the time is over, or `given_up`, asked often, is true.
  template <class GivenUp>
  nccl::Result settle(nccl::Result result, double timeout_s, const GivenUp& given_up) {
    Patience patience(timeout_s, Waiting::sleeps);
    while (result == nccl::kInProgress && !given_up() && patience.pause()) result = state();
    return result;
  }

  /// Ends what the device waits for, once, from any thread.
  void abort();
  /// Lets all that is under way end, and frees; it is aborted where that takes longer than timeout_s.
  void close(double timeout_s);

 private:
  nccl::Calls nccl_;
  nccl::Comm comm_ = nullptr;
  std::timed_mutex in_call_;
  std::atomic<bool> ended_ = false;
};

}  // namespace kozero::dist
