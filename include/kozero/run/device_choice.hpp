// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_choice.hpp: the device of a program: the host's cores (kozero) or GPUs (kozero-cuda).
// A Kokkos with CUDA aborts if no GPU is available, and its program does not load if libcuda is missing. So users start
// kozero, which looks for a GPU before MPI is up and, if run.device wants one and there is one, becomes kozero-cuda.
//   run.device   a GPU and kozero-cuda are available        else
//   host         stay                                       stay
//   auto         become kozero-cuda                         stay
//   cuda         become kozero-cuda                         stay, and require_device throws
#pragma once
#include <filesystem>
#include <string>

#include "io/deck/deck.hpp"

namespace kozero::run {

/// "host" or "cuda": the device on which this program computes.
const char* device_of_this_program();

/// The file of this program.
std::filesystem::path this_program();

/// kozero-cuda beside this program, or where its preset builds it; empty if it is not there or if no GPU is available.
std::filesystem::path usable_cuda_program();

/// Throws Error(deck), on this rank alone, if this is kozero-cuda and no GPU is available.
void require_gpu();

/// Throws Error(deck) if this program does not compute as the deck's run.device and run.products require.
void require_device(const io::Deck& deck);

/// The deck without its choice of a device, for work that needs none, and for weights, which depend on none.
io::Deck without_device(io::Deck deck);

/// One line on a faster device for a user of run.device = auto; "" if there is none.
std::string note_on_device(const io::Deck& deck);

}  // namespace kozero::run
