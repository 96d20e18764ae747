// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_watch.hpp: a thread that looks after NCCL's collectives under way, since the host may be waiting for the device
// meanwhile. A failure is an asynchronous error, or no collective done for timeout_s while one is under way. It is
// written down first, and then NCCL is aborted, which ends what the device waits for: who comes out of such a wait
// finds the failure. Whoever is about to use a result looks too: a collective that ended by an error is done as well.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include <kozero/dist/device_stream.hpp>
#include <kozero/dist/wait_clock.hpp>

#include "nccl_connection.hpp"

namespace kozero::dist {

class NcclWatch {
 public:
  NcclWatch(const nccl::Calls& calls, NcclConnection& connection, int rank, double timeout_s);
  /// Ends the thread.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// A collective is about to be put on the stream ...
  void announce(const char* collective);
  /// ... and was, and after it `done`, which outlives the watch.
  void add(const StreamEvent& done);
  /// Looks now, outside of the connection's calls(): whether NCCL failed.
  bool look();
  /// What the last look found.
  [[nodiscard]] bool failed() const { return failed_; }
  /// What happened, for an Error, once it failed.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  struct UnderWay {
    const char* collective;
    const StreamEvent* done;
  };

  void run();
  /// Empty where all is well.
  std::string found();

  nccl::Calls calls_;
  NcclConnection& connection_;
  int rank_;
  double timeout_s_;
  std::mutex mutex_;
  const char* announced_ = "no collective";
  std::deque<UnderWay> under_way_;  // the oldest first
  WaitClock without_progress_;      // since the oldest became that
  std::string failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace kozero::dist
