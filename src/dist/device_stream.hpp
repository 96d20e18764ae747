// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_stream.hpp: an ordered queue of work beside the kernels, events that order queues, and random delays for
// tests.
//   stream.record(event)      reached once all earlier work is done
//   stream.wait_for(event)    later work runs after the event
//   stream.add(sum)           a sum in rank order (ordered_sum.hpp)
// A CUDA build has CUDA's streams, a host build a thread with a queue.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace kozero::dist {

struct OrderedSum;

// Random sleeps that a test puts between the tasks of a stream (device_stream.hpp).

class StreamDelays {
 public:
  /// As the environment says now: without KOZERO_STREAM_DELAY_US there are none.
  StreamDelays();
  /// How long the next sleep is to be; each object has sleeps of its own.
  std::int64_t next_us();
  void sleep();

 private:
  std::int64_t most_us_;
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

// An ordered queue of work beside the kernels, and events that order one queue after another.
//   stream.record(event)      the event is reached once all that was put on the stream before is done
//   stream.wait_for(event)    what is put on the stream from now on runs after the event
// A CUDA build has CUDA's streams, and the host waits for nothing here. A host build has a thread with a queue; kernels
// run in their caller there, so what is recorded on the compute stream is reached at once, and the compute stream waits
// in the call. An event is recorded on one stream, again and again; a wait means the newest record at the time of the
// wait. For tests, KOZERO_STREAM_DELAY_US and KOZERO_STREAM_DELAY_SEED put random sleeps, of that many microseconds at
// most, between the tasks of either stream: where all that must be ordered is, no bit changes.

/// What the handle of a host build's stream points to: `enqueue` puts `work(argument)` on the queue.
struct HostStreamHandle {
  void (*enqueue)(HostStreamHandle* stream, void (*work)(void*), void* argument);
};

class StreamEvent {
 public:
  StreamEvent();
  ~StreamEvent();
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  /// The newest record is; so is an event that was never recorded.
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
  /// Waits for all that is on it.
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

/// Where kernels are put: Kokkos' default Device instance.
class ComputeStream {
 public:
  void record(StreamEvent& event);
  /// Where the wait is in this call, `look` is called over and over, and may throw.
  void wait_for(const StreamEvent& event, const std::function<void()>& look);

 private:
  StreamDelays delays_;
};

/// The calling thread's CUDA calls mean this process's GPU, as its first thread's do.
void enter_device();

}  // namespace kozero::dist
