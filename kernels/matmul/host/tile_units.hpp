// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units.hpp: whether the processor's AMX can be used, and why not. bf16 products use AMX if the kernel permits it,
// else AVX-512 BF16 if the processor has it. This header is separate because tile_product.hpp is also included by
// sources compiled for AVX-512.
#pragma once
#include <string>

namespace kozero::kernels {

/// What was found about AMX on this processor.
struct AmxFacts {
  bool named = false;  ///< the processor names it, and has AVX-512 BF16
  int refused = 0;     ///< the kernel's error number for AMX's tiles, 0: it grants them
  bool wrong = false;  ///< its products of small whole numbers were not exact
};

/// multiplier_note() of matmul.hpp for bf16: why AMX is named and not used, else "".
std::string note_on_amx(const AmxFacts& facts);

}  // namespace kozero::kernels
