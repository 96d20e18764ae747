// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device.cpp: queries to the CUDA runtime and CUDA events; their host counterparts in a host build.
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#if defined(KOKKOS_ENABLE_CUDA)
#include <cuda_runtime.h>
#endif

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/core/views.hpp>

namespace kozero {

Region::Region(const char* name) { Kokkos::Profiling::pushRegion(name); }

Region::~Region() { Kokkos::Profiling::popRegion(); }

double published_peak(const std::string& name, bool sixteen_bits) {
  struct Peak {
    const char* name;
    double sixteen_bits, f32;
  };
  // The first row whose name `name` contains is used. Dense, with sums in float, from NVIDIA's data sheets; the RTX
  // 4090's from its architecture's white paper (2022).
  constexpr Peak kPeaks[] = {{"H100 PCIe", 756e12, 51e12},     {"H100", 989e12, 67e12},
                             {"GH200", 989e12, 67e12},         {"H200", 989e12, 67e12},
                             {"A100", 312e12, 19.5e12},        {"B200", 2250e12, 75e12},
                             {"L40S", 362e12, 91.6e12},        {"L40", 181e12, 90.5e12},
                             {"RTX A6000", 154.8e12, 38.7e12}, {"RTX 4090", 165.2e12, 82.6e12}};
  for (const Peak& peak : kPeaks) {
    if (name.find(peak.name) != std::string::npos) return sixteen_bits ? peak.sixteen_bits : peak.f32;
  }
  return 0.0;
}

#if defined(KOKKOS_ENABLE_CUDA)

std::string device_name() {
  constexpr int kLongestAddress = 32;
  char address[kLongestAddress] = "";
  cudaDeviceProp properties{};
  const int device = Kokkos::device_id();
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return "GPU " + std::to_string(device);
  if (cudaDeviceGetPCIBusId(address, kLongestAddress, device) != cudaSuccess) return properties.name;
  return std::string(properties.name) + " at " + address;
}

DeviceMemoryInfo device_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
  return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

#else

std::string device_name() { return ""; }
DeviceMemoryInfo device_memory() { return {}; }

#endif

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

#if defined(KOKKOS_ENABLE_CUDA)

struct DeviceCopies::Lane {
  cudaStream_t stream = nullptr;

  Lane() { check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~Lane() {
    static_cast<void>(cudaStreamSynchronize(stream));
    static_cast<void>(cudaStreamDestroy(stream));
  }
  void start(void* to, const void* from, std::size_t bytes) const {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  }
  void wait() const { check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }
};

#else

struct DeviceCopies::Lane {
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  std::vector<Copy> started;

  void start(void* to, const void* from, std::size_t bytes) {
    std::memset(to, 0xFF, bytes);  // NaN, in every format
    started.push_back({to, from, bytes});
  }
  void wait() {
    for (const Copy& copy : started) std::memcpy(copy.to, copy.from, copy.bytes);
    started.clear();
  }
};

#endif

DeviceCopies::DeviceCopies() : lane_(std::make_unique<Lane>()) {}
DeviceCopies::~DeviceCopies() = default;

void DeviceCopies::start(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) lane_->start(to, from, static_cast<std::size_t>(bytes));
}

void DeviceCopies::wait() { lane_->wait(); }

DeviceMarks::DeviceMarks() : moments_(std::make_unique<Moments>()) {}
DeviceMarks::~DeviceMarks() = default;

void* HostMemory::share(const std::string& label, std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  try {
    memory = Kokkos::kokkos_malloc<Kokkos::SharedHostPinnedSpace>(label, static_cast<std::size_t>(bytes));
  } catch (const std::exception&) {
    throw Error(Failure::internal, "out of host memory: " + std::to_string(bytes) + " bytes for " + label);
  }
  owned_.push_back(memory);
  return memory;
}

HostMemory::~HostMemory() {
  for (void* memory : owned_) Kokkos::kokkos_free<Kokkos::SharedHostPinnedSpace>(memory);
}

}  // namespace kozero
