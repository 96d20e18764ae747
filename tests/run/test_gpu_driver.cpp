// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_gpu_driver.cpp: the CUDA programs that a driver and its GPUs can run, and facts read from the driver mock.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "src/run/gpu_driver.hpp"

using Catch::Matchers::ContainsSubstring;
using kozero::run::CudaBuild;
using kozero::run::GpuDriver;
using kozero::run::note_on_architecture;
using kozero::run::unsuitable_reason;

namespace {

constexpr CudaBuild kA100 = {.architecture = 80, .toolkit = 13000};
constexpr CudaBuild kH100 = {.architecture = 90, .toolkit = 13000};

GpuDriver driver(int cuda_version, int capability) { return {"", cuda_version, capability}; }

}  // namespace

TEST_CASE("a driver runs programs of its own and older versions of CUDA") {
  CHECK(unsuitable_reason(driver(13000, 80), kA100).empty());
  CHECK(unsuitable_reason(driver(13010, 80), kA100).empty());
  CHECK(unsuitable_reason(driver(14000, 80), kA100).empty());
  CHECK_THAT(
      unsuitable_reason(driver(12090, 80), kA100),
      ContainsSubstring("the NVIDIA driver supports CUDA 12.9 and the program was built with CUDA 13.0: install a "
                        "driver for CUDA 13.0 or newer"));
  // A driver of the same major version is enough, unless it has to compile the kernels.
  const CudaBuild newer = {.architecture = 80, .toolkit = 13010};
  CHECK(unsuitable_reason(driver(13000, 86), newer).empty());
  CHECK_THAT(unsuitable_reason(driver(13000, 90), newer), ContainsSubstring("install a driver for CUDA 13.1 or newer"));
  CHECK(unsuitable_reason(driver(0, 0), kA100).empty());  // the GPUs and the driver are unknown
}

TEST_CASE("kernels run on GPUs of their compute capability and newer") {
  CHECK(unsuitable_reason(driver(13000, 86), kA100).empty());
  CHECK(unsuitable_reason(driver(13000, 100), kA100).empty());
  CHECK_THAT(
      unsuitable_reason(driver(13000, 80), kH100),
      ContainsSubstring("compute capability 8.0, and the program was built for 9.0 or newer: KOZERO_CUDA_ARCH=80 "
                        "./kozero.sh --preset cuda build"));
  CHECK_THAT(unsuitable_reason(driver(13000, 75), kA100), ContainsSubstring("accepted: GPUs of 8.0 (A100) or newer"));
}

TEST_CASE("a note names the build whose kernels need no compilation at the start") {
  CHECK(note_on_architecture(driver(13000, 80), kA100).empty());
  CHECK(note_on_architecture(driver(13000, 89), kA100).empty());
  CHECK_THAT(note_on_architecture(driver(13000, 90), kA100), ContainsSubstring("KOZERO_CUDA_ARCH=90"));
  const std::string newer = note_on_architecture(driver(13000, 100), kH100);  // no build supports it
  CHECK_THAT(newer, ContainsSubstring("compute capability 10.0"));
  CHECK(newer.find("KOZERO_CUDA_ARCH") == std::string::npos);
  CHECK(note_on_architecture(driver(13000, 80), kH100).empty());  // refused instead
  CHECK(note_on_architecture(driver(12040, 90), kA100).empty());  // the same
  CHECK(note_on_architecture(driver(13000, 90), {}).empty());     // a program without CUDA
}

TEST_CASE("the driver is asked for its version and its GPUs' capability") {
  setenv("DRIVER_MOCK_GPUS", "2", 1);
  setenv("DRIVER_MOCK_CUDA", "12040", 1);
  setenv("DRIVER_MOCK_CAPABILITY", "89", 1);
  const GpuDriver found = kozero::run::gpu_driver();
  CHECK(found.unavailable_reason.empty());
  CHECK(found.cuda_version == 12040);
  CHECK(found.capability == 89);
  unsetenv("DRIVER_MOCK_GPUS");
  CHECK_THAT(kozero::run::gpu_driver().unavailable_reason, ContainsSubstring("offers no GPU (cuInit: 100)"));
}
