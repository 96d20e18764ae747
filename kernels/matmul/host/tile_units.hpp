// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units.hpp: decides whether bf16 products use AMX or AVX-512 BF16. AMX is used if the kernel permits it. AVX-512
// BF16 alone is not used if AVX-512 on floats is at least 1.4 times as fast: the library then multiplies operands
// converted to float. Intel's processors multiply floats at twice the rate of bf16 pairs, AMD's pairs at twice the rate
// of floats. Both are measured, 1 ms once a process, because a virtual machine may hide which processor it runs on.
// This header is separate because tile_product.hpp is also included by sources compiled for AVX-512.
#pragma once
#include <string>

namespace kozero::kernels {

/// What was found on this processor. Rates are of one thread in GFLOP/s, of AVX-512 on pairs of bf16 and on floats; they
/// are measured if AVX-512 BF16 is the best unit and the library is faster than the loops, else 0.
struct Bfloat16Facts {
  bool amx = false;          ///< the processor names it
  int amx_refused = 0;       ///< the kernel's error number for AMX's tiles, 0: it grants them
  bool amx_wrong = false;    ///< its products of small whole numbers were not exact
  bool avx512_bf16 = false;  ///< the processor names it
  double pairs = 0.0;
  double floats = 0.0;
};

/// Whether AMX or AVX-512 BF16 is used. The ratio of floats to pairs is 1/2, 1 or 2 on known processors, far enough from
/// 1.4 that a disturbed measurement does not change the unit, on which bits depend.
bool uses_bfloat16(const Bfloat16Facts& facts);

/// multiplier_note() of matmul.hpp for bf16.
std::string note_on_bfloat16(const Bfloat16Facts& facts);

}  // namespace kozero::kernels
