// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The KoZeRO authors
// test_main.cpp: main of the tests of one process: Kokkos around a Catch2 session.

#include <catch2/catch_session.hpp>

#include <Kokkos_Core.hpp>

#include <cstdlib>

int main(int argc, char* argv[]) {
  // The NCCL mock's copies must not wait behind a stream that waits for them: not in its queue, nor while CUDA loads a
  // kernel's code, for which it may wait until the device is idle.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  Kokkos::ScopeGuard kokkos(argc, argv);
  return Catch::Session().run(argc, argv);
}
