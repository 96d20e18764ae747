// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_onednn_absent.cpp: a build without oneDNN has no library of products on the host.
#include <kozero/core/precision.hpp>
#include "kernels/matmul/host/matmul_host.hpp"
#include "kernels/matmul/product_tuning.hpp"

namespace kozero::kernels {

template <class Out, class In>
void multiply_by_library(const Device&, const ProductShape&, Out*, const In*, const In*, const Epilogue<Out, In>&) {
  throw Error(Failure::internal, "matmul: this build has no oneDNN");
}

std::string compared_library() { return {}; }

#define KOZERO_INSTANTIATE(Out, In)                                                                          \
  template void multiply_by_library<Out, In>(const Device&, const ProductShape&, Out*, const In*, const In*, \
                                             const Epilogue<Out, In>&);
KOZERO_FOR_PRODUCTS(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
