// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gpu_driver.cpp: calls of the CUDA driver API by name, and comparisons of versions.
#include <dlfcn.h>
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <iterator>

#include "src/run/gpu_driver.hpp"

namespace kozero::run {
namespace {

// CUdevice_attribute: COMPUTE_CAPABILITY_MAJOR, _MINOR.
constexpr int kMajorAttribute = 75, kMinorAttribute = 76;

/// A function of the driver; nullptr if it has none of this name.
template <class... Parameters>
auto function(void* driver, const char* name) {
  return reinterpret_cast<int (*)(Parameters...)>(dlsym(driver, name));
}

int capability_of(void* driver, int device) {
  const auto attribute = function<int*, int, int>(driver, "cuDeviceGetAttribute");
  const auto handle = function<int*, int>(driver, "cuDeviceGet");
  int id = 0, major = 0, minor = 0;
  if (attribute == nullptr || handle == nullptr || handle(&id, device) != 0) return 0;
  if (attribute(&major, kMajorAttribute, id) != 0 || attribute(&minor, kMinorAttribute, id) != 0) return 0;
  return 10 * major + minor;
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string capability_text(int capability) { return fmt::format("{}.{}", capability / 10, capability % 10); }

/// What KOZERO_CUDA_ARCH accepts, ascending.
constexpr std::array kArchitectures = {80, 86, 89, 90};

/// The command that builds for GPUs of this capability, which is at least the first architecture's.
std::string build_command(int capability) {
  const auto newer = std::upper_bound(kArchitectures.begin(), kArchitectures.end(), capability);
  return fmt::format("KOZERO_CUDA_ARCH={} ./kozero.sh --preset cuda build", *std::prev(newer));
}

/// Machine code runs on GPUs of its own major capability; for others the driver compiles the PTX.
bool is_compiled_at_start(const GpuDriver& driver, const CudaBuild& build) {
  return driver.capability > 0 && build.architecture > 0 && driver.capability / 10 > build.architecture / 10;
}

/// The driver's version that the program needs: any of the toolkit's major version, or, if the driver compiles PTX,
/// the toolkit's own.
int needed_version(const GpuDriver& driver, const CudaBuild& build) {
  return is_compiled_at_start(driver, build) ? build.toolkit : build.toolkit / 1000 * 1000;
}

bool is_older(const GpuDriver& driver, const CudaBuild& build) {
  return driver.cuda_version > 0 && driver.cuda_version < needed_version(driver, build);
}

}  // namespace

GpuDriver gpu_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {"no NVIDIA driver is here (libcuda.so.1 does not open)"};
  const auto init = function<unsigned>(driver, "cuInit");
  const auto count = function<int*>(driver, "cuDeviceGetCount");
  if (init == nullptr || count == nullptr) return {"libcuda.so.1 is not NVIDIA's driver"};
  if (const int status = init(0); status != 0) {
    return {fmt::format("the NVIDIA driver offers no GPU (cuInit: {})", status)};
  }
  int devices = 0;
  if (count(&devices) != 0 || devices == 0) return {"the NVIDIA driver offers no GPU (CUDA_VISIBLE_DEVICES?)"};
  GpuDriver found;
  const auto version = function<int*>(driver, "cuDriverGetVersion");
  if (version == nullptr || version(&found.cuda_version) != 0) found.cuda_version = 0;
  found.capability = capability_of(driver, 0);
  for (int device = 1; device < devices; ++device) {
    found.capability = std::min(found.capability, capability_of(driver, device));
  }
  return found;
}

std::string unsuitable_reason(const GpuDriver& driver, const CudaBuild& build) {
  if (!driver.unavailable_reason.empty()) return driver.unavailable_reason;
  if (is_older(driver, build)) {
    return fmt::format(
        "the NVIDIA driver supports CUDA {} and the program was built with CUDA {}: install a driver for CUDA {} or "
        "newer, or build with an older toolkit (PATH=TOOLKIT/bin:$PATH ./kozero.sh --preset cuda build)",
        version_text(driver.cuda_version), version_text(build.toolkit), version_text(needed_version(driver, build)));
  }
  if (driver.capability == 0 || driver.capability >= build.architecture) return "";
  const std::string found = fmt::format("the GPU has compute capability {}, and the program was built for {} or newer",
                                        capability_text(driver.capability), capability_text(build.architecture));
  if (driver.capability < kArchitectures.front()) {
    return found + "; accepted: GPUs of " + capability_text(kArchitectures.front()) + " (A100) or newer";
  }
  return found + ": " + build_command(driver.capability);
}

std::string note_on_architecture(const GpuDriver& driver, const CudaBuild& build) {
  if (!is_compiled_at_start(driver, build) || !unsuitable_reason(driver, build).empty()) return "";
  const std::string note = fmt::format(
      "the GPU has compute capability {}, and the kernels were built for {}: the driver compiles them at "
      "the first start",
      capability_text(driver.capability), capability_text(build.architecture));
  const bool can_be_built = driver.capability / 10 <= kArchitectures.back() / 10;
  return can_be_built ? fmt::format("{}; `{}` makes kernels for it", note, build_command(driver.capability)) : note;
}

}  // namespace kozero::run
