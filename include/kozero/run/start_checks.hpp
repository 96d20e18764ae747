// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// start_checks.hpp: checks before a command spends time; each failure is one line with cause and remedy.
//   at once                       the launcher's processes are one MPI world; all ranks run the same program
//   when the deck is read         all ranks read the same
//   before the data are read      the run's folder can be written; memory and disk space for a checkpoint suffice
//   when the folder is made       all ranks see it
// Each check is collective and throws Error, seen by all ranks, unless it says otherwise.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/data/sampler.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/run/session.hpp>
#include <kozero/train/settings.hpp>
#include "io/deck/deck.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::run {

/// Throws Error(deck), on this rank, if the launcher started several processes and MPI's world has one.
void require_one_world(const distributed::Environment& environment);

/// Compares hashes of the executables.
void require_same_program(distributed::Communicator& comm);

/// The error names the first key on which ranks disagree.
void require_same_deck(const io::Deck& deck, distributed::Communicator& comm);

/// Compares all tokens.
void require_same_tokenizer(const io::Tokenizer& tokenizer, distributed::Communicator& comm);

/// Checks run.dir, memory and disk space of a training run, for a model of `vocab` tokens. Returns lines for the log:
/// more threads than cores; unused Slurm tasks; with checkpoint.on_error = "continue", too little disk space.
std::vector<std::string> check_before_data(Session& session, std::int64_t vocab);

/// Lines for the log about the steps that `sampler` makes of the data: ranks without work, steps that are smaller than
/// the deck's batch, a lesson with fewer tokens than it was given, saves and validations that no step reaches. Not
/// collective.
std::vector<std::string> notes_on_steps(const train::Settings& settings, const io::Deck& deck,
                                        const data::Sampler& sampler, const distributed::Environment& environment);

/// Throws Error(write) if a rank does not see the file `lock` that rank 0 holds in the run's folder, as with a disk per
/// host.
void require_one_folder(const std::string& folder, distributed::Communicator& comm);

}  // namespace kozero::run
