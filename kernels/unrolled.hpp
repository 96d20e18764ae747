// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unrolled.hpp: KOZERO_UNROLLED before a loop over a thread's own small array keeps that array in a GPU's registers, which
// have no addresses. Host compilers decide for themselves.
#pragma once

#if defined(__CUDA_ARCH__)
#define KOZERO_UNROLLED _Pragma("unroll")
#else
#define KOZERO_UNROLLED
#endif
