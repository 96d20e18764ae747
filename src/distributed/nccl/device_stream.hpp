// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_stream.hpp: a stream beside the compute stream, events that order streams, and random delays for tests.
//   stream.record(event)      the event is reached once all earlier work is done
//   stream.wait_for(event)    later work runs after the event
//   stream.add(sum)           a sum in rank order (ordered_sum.hpp)
// A CUDA build uses CUDA streams, and the host waits for nothing here. A host build uses a thread with a queue. Its
// kernels run in the calling thread, so an event recorded on the compute stream is reached at once, and the compute
// stream waits within the call. An event is recorded on one stream any number of times; a wait refers to the newest
// record at the time of the wait. For tests, KOZERO_STREAM_DELAY_US and KOZERO_STREAM_DELAY_SEED put random sleeps of
// at most that many microseconds between the tasks of both streams. If the events order all dependent work, the sleeps
// change no bit.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace kozero::distributed {

struct OrderedSum;

/// Random sleeps between the tasks of a stream, for tests.
class StreamDelays {
 public:
  /// Reads KOZERO_STREAM_DELAY_US and KOZERO_STREAM_DELAY_SEED; without KOZERO_STREAM_DELAY_US there are no sleeps.
  StreamDelays();
  /// Length of the next sleep; each object has its own sequence.
  std::int64_t next_us();
  void sleep();

 private:
  std::int64_t most_us_;
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

/// A host build's stream handle points to this struct; `enqueue` puts `work(argument)` on the queue.
struct HostStreamHandle {
  void (*enqueue)(HostStreamHandle* stream, void (*work)(void*), void* argument);
};

class StreamEvent {
 public:
  StreamEvent();
  ~StreamEvent();
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  /// Whether the newest record is reached; true for an event that was never recorded.
  [[nodiscard]] bool reached() const;

 private:
  friend class DeviceStream;
  friend class ComputeStream;
  struct State;
  std::shared_ptr<State> state_;
};

class DeviceStream {
 public:
  DeviceStream();
  /// Waits for all work on the stream.
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  /// A cudaStream_t, or a HostStreamHandle*.
  [[nodiscard]] void* handle() const;
  void record(StreamEvent& event);
  void wait_for(const StreamEvent& event);
  void add(const OrderedSum& sum);

 private:
  struct Queue;
  std::unique_ptr<Queue> queue_;
};

/// The stream of the kernels: Kokkos' default Device instance.
class ComputeStream {
 public:
  void record(StreamEvent& event);
  /// A host build waits in this call and calls `look` repeatedly, which may throw.
  void wait_for(const StreamEvent& event, const std::function<void()>& look);

 private:
  StreamDelays delays_;
};

/// Selects this process's GPU for the calling thread's CUDA calls.
void enter_device();

}  // namespace kozero::distributed
