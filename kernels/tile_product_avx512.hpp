// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_product_avx512.hpp: TileUnit::product in AVX-512, of floats and of pairs of bf16.
#pragma once
#include <cstdint>

namespace kozero::kernels::avx512 {

void product_of_floats(float* c, const void* left, const void* right, std::int64_t steps, bool accumulate);
void product_of_bfloat16(float* c, const void* left, const void* right, std::int64_t steps, bool accumulate);

}  // namespace kozero::kernels::avx512
