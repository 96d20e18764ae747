// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_product_avx512.hpp: TileUnit::product in AVX-512, of floats and of pairs of bf16.
#pragma once
#include <kozero/kernels/tile_product.hpp>

namespace kozero::kernels::avx512 {

void product_of_floats(const TileProduct& product);
void product_of_bfloat16(const TileProduct& product);

}  // namespace kozero::kernels::avx512
