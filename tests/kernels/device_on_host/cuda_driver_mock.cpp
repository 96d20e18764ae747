// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cuda_driver_mock.cpp: a libcuda.so.1 without a GPU, with which cuDNN can compile a plan: kernels are "loaded" and
// "found"; calls that would use a GPU fail with CUDA_ERROR_NO_DEVICE. cuDNN looks all these names up before it
// compiles. Handles are opaque and statuses are integers, so cuda.h is not needed; arguments that are not used are not
// declared.

namespace {

constexpr int kSuccess = 0;
constexpr int kNoDevice = 100;
char loaded = 0;  // its address stands for libraries and kernels

}  // namespace

extern "C" {

int cuLibraryLoadData(void** library) {
  *library = &loaded;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel) {
  *kernel = &loaded;
  return kSuccess;
}
int cuKernelGetFunction(void** function) {
  *function = &loaded;
  return kSuccess;
}
int cuLibraryUnload() { return kSuccess; }
int cuFuncSetAttribute() { return kSuccess; }
int cuKernelSetAttribute() { return kSuccess; }

int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

int cuGetErrorName(int /*error*/, const char** text) {
  *text = "the mock of CUDA's driver has no GPU";
  return kSuccess;
}
int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }

int cuCtxGetCurrent() { return kNoDevice; }
int cuCtxGetLimit() { return kNoDevice; }
int cuCtxPopCurrent() { return kNoDevice; }
int cuCtxPushCurrent() { return kNoDevice; }
int cuDeviceGet() { return kNoDevice; }
int cuKernelGetAttribute() { return kNoDevice; }
int cuLaunchCooperativeKernel() { return kNoDevice; }
int cuLaunchKernel() { return kNoDevice; }
int cuLaunchKernelEx() { return kNoDevice; }
int cuLibraryLoadFromFile() { return kNoDevice; }
int cuLinkAddData() { return kNoDevice; }
int cuLinkComplete() { return kNoDevice; }
int cuLinkCreate() { return kNoDevice; }
int cuLinkDestroy() { return kNoDevice; }
int cuOccupancyMaxPotentialClusterSize() { return kNoDevice; }
int cuStreamGetCtx() { return kNoDevice; }
}
