// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gpu_driver.hpp: the versions of the NVIDIA driver and the capability of its GPUs, read before the CUDA runtime is
// used, and whether a CUDA program of a given architecture and toolkit can run there.
#pragma once
#include <string>

namespace kozero::run {

struct GpuDriver {
  std::string unavailable_reason = {};  ///< "" if at least one GPU is visible (CUDA_VISIBLE_DEVICES counts)
  int cuda_version = 0;                 ///< newest CUDA that the driver supports: 12040 is 12.4; 0: unknown
  int capability = 0;                   ///< lowest compute capability of the visible GPUs: 90 is 9.0; 0: unknown
};

/// Opens libcuda.so.1. Never throws.
GpuDriver gpu_driver();

/// The build of a CUDA program.
struct CudaBuild {
  int architecture = 0;  ///< 80: kernels are compiled for sm_80; 0: none
  int toolkit = 0;       ///< 13000: by CUDA 13.0
};

/// Why the program cannot run on these GPUs, with what to install or build; "" if it can. A driver runs programs of its
/// own major version of CUDA and older, and compiles PTX of its own version and older. Kernels run on GPUs of their
/// compute capability and newer.      CUDA C++ Programming Guide, "Versioning and Compatibility".
std::string unsuitable_reason(const GpuDriver& driver, const CudaBuild& build);

/// A note with the build that starts faster, if the driver has to compile the kernels for these GPUs; else "".
std::string note_on_architecture(const GpuDriver& driver, const CudaBuild& build);

}  // namespace kozero::run
