// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unrolled.hpp: what a GPU's compiler is told before a loop; host compilers decide for themselves.
//   KOZERO_UNROLLED          a loop over a thread's own small array, which stays in registers: they have no addresses
//   KOZERO_UNROLLED_BY(n)    a loop that only reads: n reads are under way at once
#pragma once

#if defined(__CUDA_ARCH__)
#define KOZERO_PRAGMA(directive) _Pragma(#directive)
#define KOZERO_UNROLLED _Pragma("unroll")
#define KOZERO_UNROLLED_BY(n) KOZERO_PRAGMA(unroll n)
#else
#define KOZERO_UNROLLED
#define KOZERO_UNROLLED_BY(n)
#endif
