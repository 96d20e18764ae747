// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tools.hpp: the labels of kernels, arrays and fences, from Kokkos, and the waits that a mutant omits. Kokkos
// calls the library that KOKKOS_TOOLS_LIBS names at each kernel, allocation and fence; the emulator is such a library.
#pragma once
#include <string>

namespace kozero::gpu_emulator {

/// "kozero::layernorm_forward" of the kernel that this thread is about to launch; `name` if Kokkos gave none.
std::string kernel_label(const std::string& name);

/// Plants a fault: omits the waits, or records of an event, at one place of KoZeRO's host code, the options().skip-th
/// place reached. A place is the label of a fence, or the address of a call in the program. Places of Kokkos itself and
/// of libraries do not count.
bool is_left_out(const char* call, const void* caller);

}  // namespace kozero::gpu_emulator
