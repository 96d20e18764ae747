// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unrolled.hpp: what a GPU's compiler is told before a loop; host compilers decide for themselves.
//   KOZERO_UNROLLED       a loop over a thread's own small array: the array stays in registers, which have no addresses
//   KOZERO_UNROLLED_8     a loop that only reads: eight reads are under way at once
#pragma once

#if defined(__CUDA_ARCH__)
#define KOZERO_UNROLLED _Pragma("unroll")
#define KOZERO_UNROLLED_8 _Pragma("unroll 8")
#else
#define KOZERO_UNROLLED
#define KOZERO_UNROLLED_8
#endif
