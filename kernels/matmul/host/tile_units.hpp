// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units.hpp: whether a processor's units for bf16 are used. AMX is, where the kernel grants its tiles. AVX-512
// BF16 alone is not where AVX-512 multiplies floats faster: bf16 is then widened to float. Intel's processors multiply
// floats at twice the rate of pairs of bf16, AMD's pairs at twice the rate of floats. Both are measured, 1 ms once a
// process, since a virtual machine may hide what processor it runs on. Apart from tile_product.hpp, which code sees
// that is compiled for other processors than the rest.
#pragma once
#include <string>

namespace kozero::kernels {

/// What decides. Rates are of one thread in GFLOP/s, of AVX-512's pairs of bf16 and of its floats; they are measured
/// where AVX-512 BF16 is the best unit, else 0.
struct Bfloat16Facts {
  bool amx = false;          ///< the processor names it
  int amx_refused = 0;       ///< the kernel's error number for AMX's tiles, 0: it grants them
  bool avx512_bf16 = false;  ///< the processor names it
  double pairs = 0.0;
  double floats = 0.0;
};

/// Whether they are used: AMX, or pairs at 1 / 1.4 of the rate of floats or more. Half, once and twice are the rates
/// there are, so a disturbed measurement does not change the answer, on which bits depend.
bool uses_bfloat16(const Bfloat16Facts& facts);

/// multiplier_note() of matmul.hpp for bf16.
std::string note_on_bfloat16(const Bfloat16Facts& facts);

}  // namespace kozero::kernels
