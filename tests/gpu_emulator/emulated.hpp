// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// emulated.hpp: functions that the emulation's libcudart.so.13 provides to its other libraries.
#pragma once
#include <cstddef>

extern "C" {

/// Calls `work(argument)` when the stream reaches it.
void kozero_gpu_emulator_enqueue(void* stream, void (*work)(void*), void* argument);

/// The host's address of bytes of the device. Stops the program if they are not in one allocation.
void* kozero_gpu_emulator_bytes(void* device, std::size_t bytes, int written);

/// From options(): the compute capability times 10, and the driver's CUDA version.
int kozero_gpu_emulator_capability();
int kozero_gpu_emulator_driver();

}  // extern "C"
