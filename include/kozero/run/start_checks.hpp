// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// start_checks.hpp: what must hold before a command spends time; each refusal is one line with cause and remedy.
//   at once                       the launcher's processes are one MPI world; all ranks run the same program
//   when the deck is read         all ranks read the same
//   before the data are read      the run's folder can be written; memory and disk space for a checkpoint suffice
// Each check is collective and throws Error, seen by all ranks, unless it says otherwise.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/run/session.hpp>
#include "io/deck/deck.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::run {

/// Throws Error(deck), on this rank, where the launcher started several processes and MPI's world has one.
void require_one_world(const distributed::Environment& environment);

/// By a hash of the executable.
void require_same_program(distributed::Communicator& comm);

/// Names the first key that ranks disagree on.
void require_same_deck(const io::Deck& deck, distributed::Communicator& comm);

/// By all its tokens.
void require_same_tokenizer(const io::Tokenizer& tokenizer, distributed::Communicator& comm);

/// Of a training run, before its data are read: run.dir, memory and disk space, for a model of `vocab` tokens. Returns
/// lines for the log: more threads than cores; Slurm tasks that nobody started; with
/// checkpoint.on_error = "continue", too little disk space.
std::vector<std::string> check_before_data(Session& session, std::int64_t vocab);

}  // namespace kozero::run
