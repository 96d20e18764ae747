// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// driver_mock.cpp: a libcuda.so.1 with the number of GPUs in the environment variable DRIVER_MOCK_GPUS; without it
// cuInit fails. DRIVER_MOCK_CAPABILITY (default 80) is their compute capability, DRIVER_MOCK_CUDA (default 13000) the
// version.
#include <cstdlib>

namespace {

int number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

extern "C" {

int cuInit(unsigned /*flags*/) {
  constexpr int kNoDevice = 100;
  return std::getenv("DRIVER_MOCK_GPUS") == nullptr ? kNoDevice : 0;
}

int cuDeviceGetCount(int* count) {
  *count = number("DRIVER_MOCK_GPUS", 0);
  return 0;
}

int cuDriverGetVersion(int* version) {
  *version = number("DRIVER_MOCK_CUDA", 13000);
  return 0;
}

int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  constexpr int kMajor = 75;
  const int capability = number("DRIVER_MOCK_CAPABILITY", 80);
  *value = attribute == kMajor ? capability / 10 : capability % 10;
  return 0;
}
}
