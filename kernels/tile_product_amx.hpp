// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_product_amx.hpp: TileUnit::product in AMX's tiles of 16 rows of 64 bytes, and whether a process may use them.
// c lives in tiles 0 to 3, a step of left in 4 and 5 (rows 0 and 16), of right in 6 and 7 (columns 0 and 16). The order
// of instructions is a template of the tiles, so that a test runs it on tiles written in plain C++ too:
//   Tiles::zero<t>()   load<t>(from, row_bytes)   store<t>(to, row_bytes)   multiply<c, left, right>()
#pragma once
#include <cstdint>

#include <kozero/kernels/tile_product.hpp>

namespace kozero::kernels::amx {

/// The product of two blocks of bf16 on the given tiles.
template <class Tiles>
void product_on(Tiles& tiles, float* c, const void* left, const void* right, std::int64_t steps, bool accumulate) {
  constexpr std::int64_t kLineBytes = 64;
  constexpr std::int64_t kRowBytes = 2 * kLineBytes;  // of c and of right: 32 words
  float* const lower = c + kTileElements / 2;
  if (accumulate) {
    tiles.template load<0>(c, kRowBytes);
    tiles.template load<1>(c + 16, kRowBytes);
    tiles.template load<2>(lower, kRowBytes);
    tiles.template load<3>(lower + 16, kRowBytes);
  } else {
    tiles.template zero<0>();
    tiles.template zero<1>();
    tiles.template zero<2>();
    tiles.template zero<3>();
  }
  const auto* a = static_cast<const char*>(left);
  const auto* b = static_cast<const char*>(right);
  for (std::int64_t step = 0; step < steps; ++step, a += kStepBytes, b += kStepBytes) {
    tiles.template load<6>(b, kRowBytes);
    tiles.template load<4>(a, kLineBytes);
    tiles.template multiply<0, 4, 6>();
    tiles.template load<7>(b + kLineBytes, kRowBytes);
    tiles.template multiply<1, 4, 7>();
    tiles.template load<5>(a + kStepBytes / 2, kLineBytes);
    tiles.template multiply<2, 5, 6>();
    tiles.template multiply<3, 5, 7>();
  }
  tiles.template store<0>(c, kRowBytes);
  tiles.template store<1>(c + 16, kRowBytes);
  tiles.template store<2>(lower, kRowBytes);
  tiles.template store<3>(lower + 16, kRowBytes);
}

/// Asks the kernel, once a process, for the right to use the tiles, which it grants where the processor has them.
bool permitted();

void product_of_bfloat16(float* c, const void* left, const void* right, std::int64_t steps, bool accumulate);
void begin();
void end();

}  // namespace kozero::kernels::amx
