// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gelu_constants.hpp: the constants of gelu.hpp. tile_blocks.cpp needs them too, and cannot include Kokkos, since it is
// compiled for certain processors.
//   exp(-2u) = 2^(v (kGeluLinear + kGeluCubic v^2))        2u' = kGeluSlope + kGeluCurve v^2        v: the input x
#pragma once

namespace kozero::kernels {

inline constexpr float kGeluSlope = 2.0F * 0.797884560802865356F;  ///< 2 sqrt(2/pi)
inline constexpr float kGeluCurve = 3.0F * 0.044715F * kGeluSlope;
inline constexpr float kGeluLinear = -1.44269504088896341F * kGeluSlope;  ///< -log2(e) times it
inline constexpr float kGeluCubic = 0.044715F * kGeluLinear;

}  // namespace kozero::kernels
