// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_memory_cuda.cpp: the stream waits in hardware for a counter in host memory, which a worker thread raises when
// the work is done. No host function is put on the stream, since CUDA forbids host functions to wait for a thread that
// calls CUDA. The worker copies on its own stream. The tests' mains set CUDA_DEVICE_MAX_CONNECTIONS=32, so that this
// stream has its own hardware queue and is not behind a waiting stream, and CUDA_MODULE_LOADING=EAGER.
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "device_memory.hpp"

namespace kozero::test {
namespace {

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "NCCL mock: %s failed: %s\n", call, cudaGetErrorString(code));
  std::abort();
}

/// The driver's function, so that libcuda need not be linked.
auto stream_wait_value() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &function, 12000, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
#else
  check(cudaGetDriverEntryPoint("cuStreamWaitValue32", &function, cudaEnableDefault, &found),
        "cudaGetDriverEntryPoint");
#endif
  if (found != cudaDriverEntryPointSuccess) check(cudaErrorNotSupported, "cuStreamWaitValue32");
  return reinterpret_cast<CUresult (*)(cudaStream_t, CUdeviceptr, std::uint32_t, unsigned)>(function);
}

/// Does the work of all streams in the order of submission. Never destroyed.
class Worker {
 public:
  Worker() {
    check(cudaGetDevice(&device_), "cudaGetDevice");
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, sizeof(std::uint32_t), cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
    done_ = static_cast<volatile std::uint32_t*>(memory);
    *done_ = 0;
    void* on_device = nullptr;
    check(cudaHostGetDevicePointer(&on_device, memory, 0), "cudaHostGetDevicePointer");
    counter_ = reinterpret_cast<CUdeviceptr>(on_device);
    check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    std::thread([this] { run(); }).detach();
  }

  void add(cudaStream_t stream, void (*call)(void*), void* argument) {
    Work work{call, argument, nullptr};
    check(cudaEventCreateWithFlags(&work.given, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaEventRecord(work.given, stream), "cudaEventRecord");
    const std::lock_guard lock(mutex_);
    if (wait_(stream, counter_, ++added_, CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS) {
      check(cudaErrorUnknown, "cuStreamWaitValue32");
    }
    waiting_.push_back(work);
    came_.notify_one();
  }

  void copy(void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies_), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(copies_), "cudaStreamSynchronize");
  }

 private:
  struct Work {
    void (*call)(void*);
    void* argument;
    cudaEvent_t given;  ///< recorded when the work's inputs are complete
  };

  Work next() {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [this] { return !waiting_.empty(); });
    const Work work = waiting_.front();
    waiting_.pop_front();
    return work;
  }

  void run() {
    check(cudaSetDevice(device_), "cudaSetDevice");
    for (;;) {
      const Work work = next();
      const cudaError_t given = cudaEventSynchronize(work.given);
      if (given == cudaErrorCudartUnloading || given == cudaErrorContextIsDestroyed) return;  // the process ends
      check(given, "cudaEventSynchronize");
      check(cudaEventDestroy(work.given), "cudaEventDestroy");
      work.call(work.argument);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      *done_ = *done_ + 1;
    }
  }

  int device_ = 0;
  cudaStream_t copies_ = nullptr;
  volatile std::uint32_t* done_ = nullptr;  ///< number of finished work items
  CUdeviceptr counter_ = 0;                 ///< the same memory, as the device addresses it
  std::uint32_t added_ = 0;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Work> waiting_;
  decltype(stream_wait_value()) wait_ = stream_wait_value();
};

Worker& worker() {
  static auto* const worker = new Worker;
  return *worker;
}

}  // namespace

void put_on(void* stream, void (*work)(void*), void* argument) {
  worker().add(static_cast<cudaStream_t>(stream), work, argument);
}

void to_host(void* host, const void* device, std::size_t bytes) { worker().copy(host, device, bytes); }
void to_device(void* device, const void* host, std::size_t bytes) { worker().copy(device, host, bytes); }

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}
void release(void* memory) { check(cudaFree(memory), "cudaFree"); }

}  // namespace kozero::test
