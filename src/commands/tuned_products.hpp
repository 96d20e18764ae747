// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tuned_products.hpp: run.tuning: the products of this process go by a tuning file (io/tuning_file.hpp).
#pragma once
#include <string>

#include <kozero/dist/communicator.hpp>
#include <kozero/io/deck.hpp>
#include <kozero/io/tuning_file.hpp>

namespace kozero::commands {

/// What a tuning file made here says of the place, with no products in it.
io::TuningFile tuning_of_this_place();

/// Rank 0 reads the file that run.tuning names, and every rank's products go by it; by the rule without one. Returns
/// the file's text. Collective. Throws Error(input), seen by all ranks: where it cannot be read, is damaged, was made
/// for another device or library, or names a way that is not here.
std::string apply_tuning(const io::Deck& deck, dist::Communicator& comm);

}  // namespace kozero::commands
