// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_stream_host.cpp: a stream of a host build is a thread that does the work of a queue in order.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>

#include <kozero/core/views.hpp>
#include <kozero/distributed/wait_clock.hpp>
#include "src/distributed/nccl/device_stream.hpp"
#include "src/distributed/ordered_sum.hpp"

namespace kozero::distributed {

/// Records are numbered; `reached` is the newest record that the stream has reached.
struct StreamEvent::State {
  std::atomic<std::uint64_t> recorded = 0;
  std::atomic<std::uint64_t> reached = 0;

  void reach(std::uint64_t record) {
    reached = record;
    reached.notify_all();
  }
  void await(std::uint64_t record) const {
    for (std::uint64_t seen = reached; seen < record; seen = reached) reached.wait(seen);
  }
};

StreamEvent::StreamEvent() : state_(std::make_shared<State>()) {}
StreamEvent::~StreamEvent() = default;
bool StreamEvent::reached() const { return state_->reached >= state_->recorded; }

struct DeviceStream::Queue : HostStreamHandle {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::function<void()>> work;
  bool ending = false;
  StreamDelays delays;
  std::thread worker;

  Queue() : HostStreamHandle{put_call}, worker([this] { run(); }) {}
  ~Queue() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    arrived.notify_one();
    worker.join();
  }

  void put(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex);
      work.push_back(std::move(task));
    }
    arrived.notify_one();
  }

  static void put_call(HostStreamHandle* stream, void (*call)(void*), void* argument) {
    static_cast<Queue*>(stream)->put([=] { call(argument); });
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      arrived.wait(lock, [this] { return ending || !work.empty(); });
      if (work.empty()) return;
      const auto task = std::move(work.front());
      work.pop_front();
      lock.unlock();
      delays.sleep();
      task();
      lock.lock();
    }
  }
};

DeviceStream::DeviceStream() : queue_(std::make_unique<Queue>()) {}
DeviceStream::~DeviceStream() = default;

void* DeviceStream::handle() const { return static_cast<HostStreamHandle*>(queue_.get()); }

void DeviceStream::record(StreamEvent& event) {
  queue_->put([state = event.state_, record = ++event.state_->recorded] { state->reach(record); });
}

void DeviceStream::wait_for(const StreamEvent& event) {
  queue_->put([state = event.state_, record = event.state_->recorded.load()] { state->await(record); });
}

void DeviceStream::add(const OrderedSum& sum) {
  queue_->put([sum] {
    for (std::int64_t i = 0; i < sum.extent; ++i) sum(i);
  });
}

void ComputeStream::record(StreamEvent& event) {
  delays_.sleep();
  Device().fence("kozero::distributed::ComputeStream::record");
  event.state_->reach(++event.state_->recorded);
}

void ComputeStream::wait_for(const StreamEvent& event, const std::function<void()>& look) {
  delays_.sleep();
  Patience patience(std::numeric_limits<double>::infinity(), Waiting::sleeps);
  while (!event.reached()) {
    look();
    patience.pause();
  }
}

void enter_device() {}

}  // namespace kozero::distributed
