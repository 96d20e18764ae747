// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// program.hpp: which of the two programs runs (kozero or kozero-cuda), the facts recorded about it, and its command
// line.
//   run.device = host | auto | cuda   decides the program before MPI is up
//   provenance: version, commit, compiler, libraries, command, ranks, hosts, as pairs of a name and a value
//   command line: the shell command that starts the same run again
#pragma once
#include <string>
#include <utility>
#include <vector>

#include <kozero/commands/command.hpp>
#include "io/deck/deck.hpp"
#include "io/run/run_status.hpp"

namespace kozero::commands {

// One command for two programs: kozero computes on the host's cores, kozero-cuda on GPUs.
// A Kokkos with CUDA aborts where no GPU answers, and its program does not load where libcuda is missing. So users
// start kozero, which looks for a GPU before MPI is up and, where run.device wants one and there is one, becomes
// kozero-cuda.
//   run.device   a GPU answers and kozero-cuda is there     else
//   host         stay                                       stay
//   auto         become kozero-cuda                         stay
//   cuda         become kozero-cuda                         stay, and require_device refuses
// `bench` then becomes kozero-bench or kozero-bench-cuda, which lies beside the program.
// (hand_over is declared in command.hpp, for main.)

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

// What made a run, as pairs of a name and a value.
//   of the program   version, commit, compiler, kokkos, mpi, hdf5, products (the library of matrix products), cuda
//   of a run         command, started, ranks, hosts, and all of the program
// `kozero --version` prints the first; deck.toml (comments at its beginning), log.txt and "provenance" in a
// checkpoint's manifest have the second. No hash of a dataset depends on them, and ranks do not compare them.

using Facts = std::vector<std::pair<std::string, std::string>>;

/// Needs neither MPI nor Kokkos up. commit: "unknown" where the sources were built outside of git, with "+changes"
/// where tracked files differed from it. cuda: only of a program that was built with it.
Facts program_facts();

/// Of a run that starts now by `command`, a line for a shell, on `ranks`.
Facts run_facts(const std::string& command, const std::vector<io::RankProcess>& ranks);

/// "commit       0123456789ab", a line a fact, in order.
std::vector<std::string> lines_of(const Facts& facts);

/// {"commit": "0123456789ab", ...}
std::string json_of(const Facts& facts);

// The command that starts this program again, for a shell.
//   ./kozero.sh -n 2 train DECK 'data.text=["a b"]'     where kozero.sh started it (KOZERO_STARTED_BY, which it sets)
//   srun -n 2 build/release/kozero train DECK           under Slurm's launcher
//   mpiexec -n 2 build/release/kozero train DECK        under another one; without one: build/release/kozero train DECK

/// "key=value" that a deck's override reads as this text.
std::string text_override(const std::string& key, const std::string& value);

/// The word as a shell reads it back: in single quotes if it needs them, as $'a\nb' if it has control characters.
std::string quoted_for_shell(const std::string& word);

/// Of overrides of one key only the last stays: it is the one that counts.
void drop_repeated_keys(std::vector<std::string>& arguments);

std::string command_line(const std::string& command, const std::vector<std::string>& arguments, int ranks);

}  // namespace kozero::commands
