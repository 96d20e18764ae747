// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_choice.hpp: where a program computes: on the host's cores (kozero) or on GPUs (kozero-cuda).
// A Kokkos with CUDA aborts if no GPU is available, and its program does not load if libcuda is missing. So users start
// kozero, which looks for a GPU before MPI is up and, if run.device wants one and there is one, becomes kozero-cuda.
//   run.device   a GPU and kozero-cuda are available        else
//   host         stay                                       stay
//   auto         become kozero-cuda                         stay
//   cuda         become kozero-cuda                         stay, and require_device refuses
#pragma once
#include <filesystem>
#include <string>

#include "io/deck/deck.hpp"

namespace kozero::run {

/// "host" or "cuda": where this program computes.
const char* device_of_this_program();

/// The file of this program.
std::filesystem::path this_program();

/// kozero-cuda beside this program, or where its preset builds it; empty if it is not there or if no GPU is available.
std::filesystem::path usable_cuda_program();

/// Throws Error(deck), on this rank alone, if this is kozero-cuda and no GPU is available.
void require_gpu();

/// Throws Error(deck) if this program does not compute as the deck's run.device and run.products ask.
void require_device(const io::Deck& deck);

/// The deck without what asks for a device: for work that needs none, and for weights, which know none.
io::Deck without_device(io::Deck deck);

/// One line that tells a user of run.device = auto what would be faster; "" if nothing.
std::string note_on_device(const io::Deck& deck);

}  // namespace kozero::run
