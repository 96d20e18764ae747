// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string>
#include <vector>

#include <kozero/core/device_marks.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>

#if defined(KOKKOS_ENABLE_CUDA)
#include <cuda_runtime.h>
#endif

namespace kozero {

#if defined(KOKKOS_ENABLE_CUDA)

namespace {

void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw Error(Failure::internal, std::string(call) + ": " + cudaGetErrorString(code));
}

}  // namespace

struct DeviceMarks::Moments {
  std::vector<cudaEvent_t> events;

  ~Moments() {
    for (cudaEvent_t event : events) static_cast<void>(cudaEventDestroy(event));
  }
};

std::size_t DeviceMarks::set() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  moments_->events.push_back(event);
  check_cuda(cudaEventRecord(event, Device().cuda_stream()), "cudaEventRecord");
  return moments_->events.size() - 1;
}

double DeviceMarks::seconds(std::size_t from, std::size_t to) const {
  float milliseconds = 0.0F;
  check_cuda(cudaEventElapsedTime(&milliseconds, moments_->events[from], moments_->events[to]), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

#else

struct DeviceMarks::Moments {
  std::vector<std::chrono::steady_clock::time_point> times;
};

std::size_t DeviceMarks::set() {
  moments_->times.push_back(std::chrono::steady_clock::now());
  return moments_->times.size() - 1;
}

double DeviceMarks::seconds(std::size_t from, std::size_t to) const {
  return std::chrono::duration<double>(moments_->times[to] - moments_->times[from]).count();
}

#endif

DeviceMarks::DeviceMarks() : moments_(std::make_unique<Moments>()) {}
DeviceMarks::~DeviceMarks() = default;

}  // namespace kozero
