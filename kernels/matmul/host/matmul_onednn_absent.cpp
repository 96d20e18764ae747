// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_onednn_absent.cpp: the library's functions of matmul_host.hpp for a build without oneDNN: the loops compute.
#include <string>

#include <kozero/core/precision.hpp>
#include "kernels/matmul/host/matmul_host.hpp"
#include "kernels/matmul/product_tuning.hpp"

namespace kozero::kernels {

template <class Out, class In>
void multiply_by_library(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                         const Epilogue<Out, In>& epilogue) {
  multiply_by_loops(space, shape, c, a, b, epilogue);
}

const char* library_name() { return "loops"; }

bool library_depends_on_threads() { return false; }

std::string product_library() { return "loops"; }

std::string product_instructions() { return ""; }

KOZERO_INSTANTIATE_PRODUCTS(multiply_by_library)

}  // namespace kozero::kernels
