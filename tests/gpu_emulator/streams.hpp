// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// streams.hpp: queues of operations, executed by one thread in any order that streams, events and the legacy stream
// allow. With `late`, an operation starts when the host waits or after idle_us, so that a missing wait in the host's
// code leads to wrong values.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "report.hpp"

namespace kozero::gpu_emulator {

struct Event {
  std::uint64_t recorded = 0, completed = 0;
  std::chrono::steady_clock::time_point at;
};

struct Operation {
  std::function<void()> work;     ///< may be empty
  std::function<bool()> may_run;  ///< called repeatedly until it is true; empty: always true
  std::uint64_t order = 0;        ///< among all operations
  bool of_host = false;           ///< a function of the host, on the thread for those
};

struct Stream {
  bool waits_for_legacy = true;  ///< not made with cudaStreamNonBlocking
  bool runs = false, destroyed = false;
  int priority = 0;
  std::uint32_t turn = 0;  ///< of the streams that may run, the one with the lowest turn runs
  std::deque<Operation> queue;
};

class Engine {
 public:
  static Engine& instance();

  Stream* create(bool waits_for_legacy, int priority);
  void destroy(Stream* stream);
  [[nodiscard]] Stream* legacy() { return streams_.front().get(); }

  void enqueue(Stream* stream, std::function<void()> work, bool of_host = false);
  void enqueue_when(Stream* stream, std::function<bool()> may_run);

  void record(Stream* stream, const std::shared_ptr<Event>& event);
  void wait_event(Stream* stream, const std::shared_ptr<Event>& event);
  bool reached(const std::shared_ptr<Event>& event);

  void synchronize(Stream* stream);
  void synchronize(const std::shared_ptr<Event>& event);
  void synchronize_all();
  bool idle(Stream* stream);

 private:
  Engine();
  void push(Stream* stream, Operation operation);
  void run();
  void run_host_functions();
  void finish(Stream* stream);
  Stream* choose();
  [[nodiscard]] bool may_begin(const Stream& stream) const;
  [[nodiscard]] bool host_waits() const;
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::deque<std::pair<Stream*, std::function<void()>>> host_functions_;
  std::uint64_t last_order_ = 0;
  std::vector<const std::function<bool()>*> waits_;  ///< one per waiting thread of the host: whether its wait is over
  Random random_;
  int until_next_draw_ = 0;  ///< operations
  std::thread::id host_functions_thread_;
};

}  // namespace kozero::gpu_emulator
