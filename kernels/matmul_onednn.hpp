// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_onednn.hpp: the matrix product on the host by oneDNN.
#pragma once
#include <cstdint>

#include <kozero/kernels/matmul.hpp>

namespace kozero::kernels {

/// multiply() of matmul.hpp. Throws Error(internal) where oneDNN fails.
template <class Out, class In>
void multiply_by_onednn(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                        const Epilogue<Out, In>& epilogue);

}  // namespace kozero::kernels
