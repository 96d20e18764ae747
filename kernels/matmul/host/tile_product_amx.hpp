// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_product_amx.hpp: TileUnit::product in AMX's tiles of 16 rows of 64 bytes, and whether a process may use them.
// c is in tiles 0 to 3, a step of left in 4 and 5 (rows 0 and 16), of right in 6 and 7 (columns 0 and 16). The order
// of instructions is a template of the tiles, so that a test runs it on tiles written in plain C++ too:
//   Tiles::zero<t>()   load<t>(from, row_bytes)   load_once<t>(...)   store<t>(to, row_bytes)
//   Tiles::multiply<c, left, right>()
#pragma once
#include <cstdint>

#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels::amx {

/// Loads a tile of an operand. `once`: it need not stay in the first-level cache.
template <int tile, bool once, class Tiles>
void load_operand(Tiles& tiles, const void* from, std::int64_t row_bytes) {
  if constexpr (once) {
    tiles.template load_once<tile>(from, row_bytes);
  } else {
    tiles.template load<tile>(from, row_bytes);
  }
}

/// The product of two blocks of bf16 on the given tiles.
template <bool left_once, bool right_once, class Tiles>
void multiply_on(Tiles& tiles, const TileProduct& product) {
  constexpr std::int64_t kLineBytes = 64;
  constexpr std::int64_t kRowBytes = 2 * kLineBytes;  // of c and of right: 32 words
  constexpr std::int64_t kLower = kTileElements / 2;
  if (const float* const before = product.before; before != nullptr) {
    tiles.template load<0>(before, kRowBytes);
    tiles.template load<1>(before + 16, kRowBytes);
    tiles.template load<2>(before + kLower, kRowBytes);
    tiles.template load<3>(before + kLower + 16, kRowBytes);
  } else {
    tiles.template zero<0>();
    tiles.template zero<1>();
    tiles.template zero<2>();
    tiles.template zero<3>();
  }
  const auto* a = static_cast<const char*>(product.left);
  const auto* b = static_cast<const char*>(product.right);
  const SideWork beside = product.beside;
  for (std::int64_t step = 0; step < product.steps; ++step, a += product.step_bytes, b += product.step_bytes) {
    load_operand<6, right_once>(tiles, b, kRowBytes);
    load_operand<4, left_once>(tiles, a, kLineBytes);
    tiles.template multiply<0, 4, 6>();
    load_operand<7, right_once>(tiles, b + kLineBytes, kRowBytes);
    tiles.template multiply<1, 4, 7>();
    load_operand<5, left_once>(tiles, a + kStepBytes / 2, kLineBytes);
    tiles.template multiply<2, 5, 6>();
    tiles.template multiply<3, 5, 7>();
    if (beside.part != nullptr) beside.part(beside.of, step);
  }
  float* const c = product.c;
  tiles.template store<0>(c, kRowBytes);
  tiles.template store<1>(c + 16, kRowBytes);
  tiles.template store<2>(c + kLower, kRowBytes);
  tiles.template store<3>(c + kLower + 16, kRowBytes);
}

template <class Tiles>
void product_on(Tiles& tiles, const TileProduct& product) {
  switch (product.once) {
    case ReadOnce::neither:
      return multiply_on<false, false>(tiles, product);
    case ReadOnce::left:
      return multiply_on<true, false>(tiles, product);
    case ReadOnce::right:
      return multiply_on<false, true>(tiles, product);
  }
}

/// Requests the kernel's permission to use the tiles, once per process. Returns 0 if granted, else the error number;
/// ENOSYS if the system has no such request.
int refusal();

void product_of_bfloat16(const TileProduct& product);
void begin();
void end();

}  // namespace kozero::kernels::amx
