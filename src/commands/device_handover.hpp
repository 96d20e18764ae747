// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_handover.hpp: one command for two programs: kozero computes on the host's cores, kozero-cuda on GPUs.
// A Kokkos with CUDA aborts where no GPU answers, and its program does not load where libcuda is missing. So users
// start kozero, which looks for a GPU before MPI is up and, where run.device wants one and there is one, becomes
// kozero-cuda.
//   run.device   a GPU answers and kozero-cuda is there     else
//   host         stay                                       stay
//   auto         become kozero-cuda                         stay
//   cuda         become kozero-cuda                         stay, and require_device refuses
// (hand_over is declared in command.hpp, for main.)
#pragma once
#include <string>

#include <kozero/commands/command.hpp>
#include <kozero/io/deck.hpp>

namespace kozero::commands {

/// "host" or "cuda": where this program computes.
const char* device_of_this_program();

/// Throws Error(deck), on this rank alone, where this is kozero-cuda and no GPU answers.
void require_gpu();

/// Throws Error(deck) where this program does not compute as the deck's run.device and run.products ask.
void require_device(const io::Deck& deck);

/// The deck without what asks for a device: for work that needs none, and for weights, which know none.
io::Deck without_device(io::Deck deck);

/// What a user of run.device = auto would want to know, in one line; mostly "".
std::string note_on_device(const io::Deck& deck);

}  // namespace kozero::commands
