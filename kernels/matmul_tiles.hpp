// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_tiles.hpp: the matrix product on the host in blocks of 32 x 32, by a tile unit of the processor.
// Terms are added in the order of k, so the bits of an element depend on its row of op(a), its column of op(b) and the
// unit alone: not on the other rows, nor on the number of threads.
#pragma once
#include <cstdint>

#include <kozero/kernels/matmul.hpp>
#include <kozero/kernels/tile_product.hpp>

namespace kozero::kernels {

/// multiply() of matmul.hpp by `unit`, one of tile_units<In>().
template <class Out, class In>
void multiply_by_tiles(const Device& space, const TileUnit& unit, const ProductShape& shape, Out* c, const In* a,
                       const In* b, const Epilogue<Out, In>& epilogue);

}  // namespace kozero::kernels
