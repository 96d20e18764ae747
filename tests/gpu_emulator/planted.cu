// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// planted.cu: one fault per run, selected by name, for test_planted.sh. Most have a correct variant; "sound" runs all
// of them, and the emulator must report nothing.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>

namespace {

constexpr int kThreads = 64;

template <bool kFault>
__global__ void past_the_end(float* x) {
  x[threadIdx.x + (kFault ? 1 : 0)] = 1.0F;
}

__global__ void load(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }

template <bool kFault>
__global__ void pack(const float* x, float* y) {
  const float4 four = *reinterpret_cast<const float4*>(x + (kFault ? 1 : 4));
  if (threadIdx.x == 0) *y = four.x + four.w;
}

template <bool kFault>
__global__ void neighbor(float* y) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (!kFault) __syncthreads();
  y[threadIdx.x] = shared[(threadIdx.x + 32) % kThreads];
}

template <bool kFault>
__global__ void neighbor_of_warp(float* y) {
  __shared__ volatile float shared[kThreads];
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (!kFault) __syncwarp();
  y[threadIdx.x] = shared[threadIdx.x ^ 1];
}

template <bool kFault>
__global__ void overwrite(float* y) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = 1.0F;
  __syncthreads();
  const float other = shared[(threadIdx.x + 32) % kThreads];
  if (!kFault) __syncthreads();
  shared[threadIdx.x] = other + 1.0F;
  __syncthreads();
  y[threadIdx.x] = shared[threadIdx.x];
}

template <bool kFault>
__global__ void one_element(float* y) {
  if (threadIdx.x == 0) y[kFault ? 0 : blockIdx.x] = static_cast<float>(blockIdx.x);
}

// The last block to arrive adds the values that all blocks have written, with or without a fence before the count.
template <bool kFault>
__global__ void last_block(float* parts, unsigned* count, float* sum) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = 1.0F;
    if (!kFault) __threadfence();
    last = atomicAdd(count, 1U) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  float all = 0.0F;
  for (unsigned i = 0; i < gridDim.x; ++i) all += parts[i];
  *sum = all;
}

template <bool kFault>
__global__ void barrier_in_branch(float* y) {
  if (!kFault || threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = 1.0F;
  if (kFault && threadIdx.x >= 32) {
    while (atomicAdd(y + threadIdx.x, 0.0F) < 0.0F) {
    }
  }
}

template <bool kFault>
__global__ void barrier_after_end(float* y) {
  if (kFault && threadIdx.x == 3) return;
  __syncthreads();
  y[threadIdx.x] = 1.0F;
}

template <bool kFault>
__global__ void shuffle(float* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0xFFFFU, 1.0F, kFault ? 20 : 12);
}

template <bool kFault>
__global__ void mask(float* y) {
  if (threadIdx.x < 16)
    y[threadIdx.x] = __shfl_down_sync(kFault ? 0xFFFFFFFFU : 0xFFFFU, 1.0F, 1, 16);
  else
    y[threadIdx.x] = __shfl_down_sync(0xFFFF0000U, 1.0F, 1, 16);
}

__global__ void dynamic_shared(float* y) {
  extern __shared__ float shared[];
  shared[threadIdx.x] = 1.0F;
  y[threadIdx.x] = shared[threadIdx.x];
}

template <bool kFault>
__global__ void unwritten_shared(float* y) {
  __shared__ float shared[kThreads];
  if (!kFault || threadIdx.x > 0) shared[threadIdx.x] = 1.0F;
  __syncthreads();
  y[threadIdx.x] = shared[threadIdx.x];
}

template <bool kFault>
__global__ void past_shared(float* y, int n) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = 1.0F;
  __syncthreads();
  y[threadIdx.x] = shared[kFault ? n : n - 1];
}

__global__ void __launch_bounds__(32) bounded(float* y) { y[threadIdx.x] = 1.0F; }
__global__ void add_one(float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] += 1.0F;
}

struct Arrays {
  float* x = nullptr;
  float* y = nullptr;
  unsigned* count = nullptr;
  Arrays() {
    cudaMalloc(&x, kThreads * sizeof(float));
    cudaMalloc(&y, kThreads * sizeof(float));
    cudaMalloc(&count, sizeof(unsigned));
    cudaMemset(x, 0, kThreads * sizeof(float));
    cudaMemset(y, 0, kThreads * sizeof(float));
    cudaMemset(count, 0, sizeof(unsigned));
    cudaDeviceSynchronize();  // streams that do not synchronize with the default stream use them too
  }
  ~Arrays() {
    cudaFree(x);
    cudaFree(y);
    cudaFree(count);
  }
};

void expect(float is, float wanted) {
  if (is == wanted) return;
  std::printf("wrong value: %g instead of %g\n", static_cast<double>(is), static_cast<double>(wanted));
  std::exit(1);
}

float first(const float* y) {
  float value = 0.0F;
  cudaMemcpy(&value, y, sizeof(value), cudaMemcpyDeviceToHost);
  return value;
}

// Two streams: the second reads the results of the first.
template <bool kFault>
void two_streams(Arrays& a) {
  cudaStream_t one, two;
  cudaEvent_t event;
  cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  for (int i = 0; i < 500; ++i) {
    add_one<<<1, 1, 0, one>>>(a.x, 1);
    cudaEventRecord(event, one);
    if (!kFault) cudaStreamWaitEvent(two, event, 0);
    cudaMemcpyAsync(a.y, a.x, sizeof(float), cudaMemcpyDeviceToDevice, two);
    cudaStreamSynchronize(two);
    expect(first(a.y), static_cast<float>(i + 1));
    cudaStreamSynchronize(one);
  }
  cudaStreamDestroy(one);
  cudaStreamDestroy(two);
  cudaEventDestroy(event);
}

// A pinned buffer is filled again before its copy has ended.
template <bool kFault>
void reused_buffer(Arrays& a) {
  float* pinned = nullptr;
  cudaMallocHost(&pinned, sizeof(float));
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  *pinned = 1.0F;
  cudaMemcpyAsync(a.x, pinned, sizeof(float), cudaMemcpyHostToDevice, stream);
  if (!kFault) cudaStreamSynchronize(stream);
  *pinned = 2.0F;
  cudaStreamSynchronize(stream);
  expect(first(a.x), 1.0F);
  cudaStreamDestroy(stream);
  cudaFreeHost(pinned);
}

// A host function uses a destroyed object.
template <bool kFault>
void host_function(Arrays& a) {
  static float seen;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  auto* value = new float(1.0F);
  cudaLaunchHostFunc(
      stream, [](void* at) { seen = *static_cast<float*>(at); }, value);
  if (!kFault) cudaStreamSynchronize(stream);
  *value = 2.0F;
  cudaStreamSynchronize(stream);
  delete value;
  expect(seen, 1.0F);
  cudaStreamDestroy(stream);
  static_cast<void>(a);
}

template <bool kFault>
void read_too_early(Arrays& a) {
  float* pinned = nullptr;
  cudaMallocHost(&pinned, sizeof(float));
  *pinned = 0.0F;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  add_one<<<1, 1, 0, stream>>>(pinned, 1);
  if (!kFault) cudaStreamSynchronize(stream);
  expect(*pinned, 1.0F);
  cudaStreamDestroy(stream);
  cudaFreeHost(pinned);
  static_cast<void>(a);
}

using Case = std::function<void(Arrays&)>;
struct Twins {
  Case fault, sound;
};

const std::map<std::string, Twins> kCases = {
    {"past_the_end",
     {[](Arrays& a) { past_the_end<true><<<1, kThreads>>>(a.x); },
      [](Arrays& a) { past_the_end<false><<<1, kThreads>>>(a.x); }}},
    {"freed",
     {[](Arrays& a) {
        float* gone;
        cudaMalloc(&gone, 4096);
        cudaMemset(gone, 0, 4096);
        cudaFree(gone);
        load<<<1, kThreads>>>(gone, a.y);
      },
      {}}},
    {"unwritten",
     {[](Arrays& a) {
        float* fresh;
        cudaMalloc(&fresh, 4096);
        load<<<1, kThreads>>>(fresh, a.y);
        cudaFree(fresh);
      },
      [](Arrays& a) { load<<<1, kThreads>>>(a.x, a.y); }}},
    {"misaligned",
     {[](Arrays& a) { pack<true><<<1, 1>>>(a.x, a.y); }, [](Arrays& a) { pack<false><<<1, 1>>>(a.x, a.y); }}},
    {"no_syncthreads",
     {[](Arrays& a) { neighbor<true><<<1, kThreads>>>(a.y); },
      [](Arrays& a) { neighbor<false><<<1, kThreads>>>(a.y); }}},
    {"no_syncwarp",
     {[](Arrays& a) { neighbor_of_warp<true><<<1, kThreads>>>(a.y); },
      [](Arrays& a) { neighbor_of_warp<false><<<1, kThreads>>>(a.y); }}},
    {"overwritten",
     {[](Arrays& a) { overwrite<true><<<1, kThreads>>>(a.y); },
      [](Arrays& a) { overwrite<false><<<1, kThreads>>>(a.y); }}},
    {"one_element",
     {[](Arrays& a) { one_element<true><<<4, kThreads>>>(a.y); },
      [](Arrays& a) { one_element<false><<<4, kThreads>>>(a.y); }}},
    {"no_fence",
     {[](Arrays& a) { last_block<true><<<4, 32>>>(a.x, a.count, a.y); },
      [](Arrays& a) { last_block<false><<<4, 32>>>(a.x, a.count, a.y); }}},
    {"barrier_in_branch",
     {[](Arrays& a) { barrier_in_branch<true><<<1, kThreads>>>(a.y); },
      [](Arrays& a) { barrier_in_branch<false><<<1, kThreads>>>(a.y); }}},
    {"barrier_after_end",
     {[](Arrays& a) { barrier_after_end<true><<<1, kThreads>>>(a.y); },
      [](Arrays& a) { barrier_after_end<false><<<1, kThreads>>>(a.y); }}},
    {"shuffle", {[](Arrays& a) { shuffle<true><<<1, 32>>>(a.y); }, [](Arrays& a) { shuffle<false><<<1, 32>>>(a.y); }}},
    {"mask", {[](Arrays& a) { mask<true><<<1, 32>>>(a.y); }, [](Arrays& a) { mask<false><<<1, 32>>>(a.y); }}},
    {"unwritten_shared",
     {[](Arrays& a) { unwritten_shared<true><<<1, kThreads>>>(a.y); },
      [](Arrays& a) { unwritten_shared<false><<<1, kThreads>>>(a.y); }}},
    {"past_shared",
     {[](Arrays& a) { past_shared<true><<<1, kThreads>>>(a.y, kThreads); },
      [](Arrays& a) { past_shared<false><<<1, kThreads>>>(a.y, kThreads); }}},
    {"past_dynamic",
     {[](Arrays& a) { dynamic_shared<<<1, kThreads, 4 * kThreads - 4>>>(a.y); },
      [](Arrays& a) { dynamic_shared<<<1, kThreads, 4 * kThreads>>>(a.y); }}},
    {"large_block", {[](Arrays& a) { load<<<1, 2048>>>(a.x, a.y); }, {}}},
    {"launch_bounds", {[](Arrays& a) { bounded<<<1, kThreads>>>(a.y); }, [](Arrays& a) { bounded<<<1, 32>>>(a.y); }}},
    {"large_shared",
     {[](Arrays& a) { dynamic_shared<<<1, kThreads, 60000>>>(a.y); },
      [](Arrays& a) {
        cudaFuncSetAttribute(dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000);
        dynamic_shared<<<1, kThreads, 60000>>>(a.y);
      }}},
    {"large_grid", {[](Arrays& a) { load<<<dim3(1, 70000), kThreads>>>(a.x, a.y); }, {}}},
    {"host_reads_device", {[](Arrays& a) { expect(*a.y, 0.0F); }, {}}},
    {"device_reads_host",
     {[](Arrays& a) {
        static float on_host[kThreads];
        load<<<1, kThreads>>>(on_host, a.y);
      },
      {}}},
    {"long_copy",
     {[](Arrays& a) {
        float host[kThreads + 1];
        cudaMemcpy(host, a.x, sizeof(host), cudaMemcpyDeviceToHost);
      },
      {}}},
    {"freed_twice",
     {[](Arrays&) {
        float* once;
        cudaMalloc(&once, 64);
        cudaFree(once);
        cudaFree(once);
      },
      {}}},
    {"leak",
     {[](Arrays&) {
        float* lost;
        cudaMalloc(&lost, 64);
      },
      {}}},
    {"no_wait", {two_streams<true>, two_streams<false>}},
    {"reused_buffer", {reused_buffer<true>, reused_buffer<false>}},
    {"host_function", {host_function<true>, host_function<false>}},
    {"read_too_early", {read_too_early<true>, read_too_early<false>}},
};

}  // namespace

int main(int count, char** arguments) {
  const std::string name = count > 1 ? arguments[1] : "";
  Arrays arrays;
  for (const auto& [each, twins] : kCases) {
    if (name == "sound" && twins.sound) {
      Arrays own;
      twins.sound(own);
      cudaDeviceSynchronize();
    }
    if (name == each) twins.fault(arrays);
    if (name == "list") std::puts(each.c_str());
  }
  cudaDeviceSynchronize();
  return 0;
}
