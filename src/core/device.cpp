// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/device.hpp>

#if defined(KOKKOS_ENABLE_CUDA)
#include <cuda_runtime.h>
#endif

namespace kozero {

double published_peak(const std::string& name, bool sixteen_bits) {
  struct Peak {
    const char* name;
    double sixteen_bits, f32;
  };
  // The first that the name contains.
  constexpr Peak kPeaks[] = {
      {"H100 PCIe", 756e12, 51e12}, {"H100", 989e12, 67e12}, {"H200", 989e12, 67e12}, {"A100", 312e12, 19.5e12}};
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

}  // namespace kozero
