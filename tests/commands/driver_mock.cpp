// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// driver_mock.cpp: a libcuda.so.1 with as many GPUs as the environment's DRIVER_MOCK_GPUS says; without it cuInit
// fails.
#include <cstdlib>

extern "C" {

int cuInit(unsigned /*flags*/) {
  constexpr int kNoDevice = 100;
  return std::getenv("DRIVER_MOCK_GPUS") == nullptr ? kNoDevice : 0;
}

int cuDeviceGetCount(int* count) {
  *count = std::atoi(std::getenv("DRIVER_MOCK_GPUS"));
  return 0;
}
}
