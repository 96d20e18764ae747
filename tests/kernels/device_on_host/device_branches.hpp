// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_branches.hpp: included before a source file of a host build, it selects the kernels' GPU branches: the code
// in KOKKOS_IF_ON_DEVICE, teams of several threads, packs of 16 bytes. A warp's lanes become a loop on one thread.
// This tests the kernels' arithmetic and indices without a GPU. Not tested: errors that need several lanes at once, the
// order in which a warp adds its lanes, and the GPU's conversions of 16-bit types, which Kokkos lacks on a host.
// Needs 8 threads.
#pragma once
#include <Kokkos_Core.hpp>

#include <kozero/core/precision.hpp>

#undef KOKKOS_IF_ON_HOST
#undef KOKKOS_IF_ON_DEVICE
#define KOZERO_IN_BRACES(...) \
  { __VA_ARGS__ }
#define KOKKOS_IF_ON_HOST(CODE)
#define KOKKOS_IF_ON_DEVICE(CODE) KOZERO_IN_BRACES CODE

#include "kernels/launch/for_each.hpp"

template <>
inline constexpr bool kozero::kernels::runs_on_host<Kokkos::DefaultExecutionSpace> = false;
