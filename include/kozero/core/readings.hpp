// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// readings.hpp: numbers that kernels write while the host goes on, and the host reads after a fence.
// On a GPU they lie in pinned memory of the host, which kernels reach: a number costs no copy and no wait of its own.
#pragma once
#include <Kokkos_Core.hpp>

namespace kozero {

using Readings = Kokkos::View<double*, Kokkos::SharedHostPinnedSpace>;

}  // namespace kozero
