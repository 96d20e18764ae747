// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_memory_cuda.cpp: a function on the stream holds it up while a thread, which may call CUDA as the function may
// not, does the work. Copies go over a stream of that thread's own, which does not wait for the one that is held up.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "device_memory.hpp"

namespace kozero::test {
namespace {

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "NCCL's double: %s failed: %s\n", call, cudaGetErrorString(code));
  std::abort();
}

struct Work {
  void (*call)(void*);
  void* argument;
  int device;
};

void do_in_thread(void* pointer) {
  const auto* work = static_cast<const Work*>(pointer);
  std::thread([work] {
    check(cudaSetDevice(work->device), "cudaSetDevice");
    work->call(work->argument);
  }).join();
  delete work;
}

void copy(void* to, const void* from, std::size_t bytes) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace

void put_on(void* stream, void (*work)(void*), void* argument) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), do_in_thread, new Work{work, argument, device}),
        "cudaLaunchHostFunc");
}

void to_host(void* host, const void* device, std::size_t bytes) { copy(host, device, bytes); }
void to_device(void* device, const void* host, std::size_t bytes) { copy(device, host, bytes); }

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}
void release(void* memory) { check(cudaFree(memory), "cudaFree"); }

}  // namespace kozero::test
