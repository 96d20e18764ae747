// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cublaslt.cpp: libcublasLt.so.13 is the tests' mock (kernels/device_on_host), with its products on the stream and in
// the memory of the emulated device.
#include "tests/kernels/device_on_host/cublaslt_mock_product.hpp"

#include <functional>
#include <memory>

#include "emulated.hpp"

namespace kozero::cublaslt_mock {

void compute(const Computation& computation, void* stream) {
  auto* const later = new Computation(computation);
  kozero_gpu_emulator_enqueue(
      stream,
      [](void* given) {
        const std::unique_ptr<Computation> product(static_cast<Computation*>(given));
        product->translate([](void* at, std::int64_t bytes, bool written) {
          return kozero_gpu_emulator_bytes(at, static_cast<std::size_t>(bytes), written ? 1 : 0);
        });
        product->run();
      },
      later);
}

}  // namespace kozero::cublaslt_mock
