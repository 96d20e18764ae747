// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_branches.hpp: included before a source file of a host build, it makes the kernels take their GPU branches: the
// code in KOKKOS_IF_ON_DEVICE, teams of several threads, and packs of 16 bytes. The lanes of a warp become a loop on one
// thread. So the kernels' own arithmetic and indices are tested without a GPU; the order in which a warp's lanes are
// added, and what only several lanes at once can get wrong, are not. Nor are the GPU's conversions of 16-bit types,
// which the host's Kokkos does not have. Needs 8 threads.
#pragma once
#include <Kokkos_Core.hpp>

#include <kozero/core/precision.hpp>

#undef KOKKOS_IF_ON_HOST
#undef KOKKOS_IF_ON_DEVICE
#define KOZERO_IN_BRACES(...) {__VA_ARGS__}
#define KOKKOS_IF_ON_HOST(CODE)
#define KOKKOS_IF_ON_DEVICE(CODE) KOZERO_IN_BRACES CODE

#include <kozero/kernels/elements.hpp>

template <>
inline constexpr bool kozero::kernels::runs_on_host<Kokkos::DefaultExecutionSpace> = false;
