// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_stream_cuda.cpp: streams and events of a CUDA build are CUDA's own.
#include <cuda_runtime.h>
#include <chrono>
#include <optional>
#include <thread>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "src/distributed/nccl/device_stream.hpp"
#include "src/distributed/ordered_sum.hpp"

namespace kozero::distributed {
namespace {

void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  throw Error(Failure::internal, std::string(call) + " failed: " + cudaGetErrorString(code));
}

cudaStream_t compute_stream() { return Device().cuda_stream(); }

void sleep_before_next(cudaStream_t stream, StreamDelays& delays) {
  const std::int64_t us = delays.next_us();
  if (us == 0) return;
  const auto sleep = [](void* length) {
    std::this_thread::sleep_for(std::chrono::microseconds(reinterpret_cast<std::intptr_t>(length)));
  };
  check_cuda(cudaLaunchHostFunc(stream, sleep, reinterpret_cast<void*>(us)), "cudaLaunchHostFunc");
}

}  // namespace

struct StreamEvent::State {
  cudaEvent_t event = nullptr;

  State() { check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  ~State() { static_cast<void>(cudaEventDestroy(event)); }
};

StreamEvent::StreamEvent() : state_(std::make_shared<State>()) {}
StreamEvent::~StreamEvent() = default;

bool StreamEvent::reached() const {
  const cudaError_t code = cudaEventQuery(state_->event);
  if (code == cudaErrorNotReady) return false;
  check_cuda(code, "cudaEventQuery");
  return true;
}

/// A stream of high priority that does not wait for the legacy default stream.
struct DeviceStream::Queue {
  cudaStream_t stream = nullptr;
  std::optional<Device> kernels;  // of this stream
  StreamDelays delays;

  Queue() {
    int least = 0;
    int greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
  }
  ~Queue() {
    kernels.reset();
    static_cast<void>(cudaStreamSynchronize(stream));
    static_cast<void>(cudaStreamDestroy(stream));
  }
};

DeviceStream::DeviceStream() : queue_(std::make_unique<Queue>()) {}
DeviceStream::~DeviceStream() = default;

void* DeviceStream::handle() const { return queue_->stream; }

void DeviceStream::record(StreamEvent& event) {
  check_cuda(cudaEventRecord(event.state_->event, queue_->stream), "cudaEventRecord");
}

void DeviceStream::wait_for(const StreamEvent& event) {
  check_cuda(cudaStreamWaitEvent(queue_->stream, event.state_->event, 0), "cudaStreamWaitEvent");
  sleep_before_next(queue_->stream, queue_->delays);
}

void DeviceStream::add(const OrderedSum& sum) {
  using Policy = Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>;
  if (!queue_->kernels) queue_->kernels.emplace(queue_->stream);
  Kokkos::parallel_for("kozero::distributed::add_in_rank_order", Policy(*queue_->kernels, 0, sum.extent), sum);
}

void ComputeStream::record(StreamEvent& event) {
  sleep_before_next(compute_stream(), delays_);
  check_cuda(cudaEventRecord(event.state_->event, compute_stream()), "cudaEventRecord");
}

void ComputeStream::wait_for(const StreamEvent& event, const std::function<void()>& /*look*/) {
  check_cuda(cudaStreamWaitEvent(compute_stream(), event.state_->event, 0), "cudaStreamWaitEvent");
}

void enter_device() { check_cuda(cudaSetDevice(Device().cuda_device()), "cudaSetDevice"); }

}  // namespace kozero::distributed
