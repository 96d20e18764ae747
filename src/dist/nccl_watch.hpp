// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_watch.hpp: a thread that looks after NCCL's collectives under way, since the host may be waiting for the device meanwhile.
// A failure is an asynchronous error, or no collective done for timeout_s while one is under way. It is written down first, and
// then NCCL is aborted, which ends what the device waits for: who comes out of such a wait finds the failure. Whoever is about to
// use a result looks too: a collective that ended by an error is done as well.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include <kozero/dist/device_stream.hpp>
#include <kozero/dist/nccl_calls.hpp>

namespace kozero::dist {

class NcclWatch {
 public:
  NcclWatch(const nccl::Calls& calls, nccl::Comm comm, int rank, double timeout_s);
  /// Ends the thread.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// Held around calls of NCCL: it is not aborted between two of a group.
  [[nodiscard]] std::timed_mutex& calls() { return in_call_; }
  /// A collective was started after all earlier ones; `done` outlives the watch.
  void add(const char* collective, const StreamEvent& done);
  /// Looks now, outside of calls(): whether NCCL failed.
  bool look();
  /// What the last look found.
  [[nodiscard]] bool failed() const { return failed_; }
  /// What happened, for an Error, once it failed.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct UnderWay {
    const char* collective;
    const StreamEvent* done;
  };

  void run();
  /// Empty where all is well.
  std::string found();
  void abort();

  nccl::Calls calls_;
  nccl::Comm comm_;
  int rank_;
  double timeout_s_;
  std::timed_mutex in_call_;
  std::mutex mutex_;
  std::deque<UnderWay> under_way_;  // the oldest first
  Clock::time_point progress_;      // when the oldest became that
  std::string failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace kozero::dist
