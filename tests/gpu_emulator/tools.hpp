// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tools.hpp: names that the program gives its kernels and arrays, from Kokkos. Kokkos calls the library that
// KOKKOS_TOOLS_LIBS names before each kernel and at each allocation; the emulator is such a library.
#pragma once
#include <string>

namespace kozero::gpu_emulator {

/// "kozero::layernorm_forward" of the kernel that this thread is about to launch; `name` if Kokkos gave none.
std::string kernel_label(const std::string& name);

/// "kozero::capture" of Kokkos' fence in which this thread is; "" outside.
const std::string& fence_label();

/// Whether Kokkos::initialize has started the device; its waits before are its own.
bool kokkos_has_started();

}  // namespace kozero::gpu_emulator
