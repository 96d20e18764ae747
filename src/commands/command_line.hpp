// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// command_line.hpp: the command that starts this program again, for a shell.
//   ./kozero.sh -n 2 train DECK 'data.text=["a b"]'     where kozero.sh started it (KOZERO_STARTED_BY, which it sets)
//   srun -n 2 build/release/kozero train DECK           under Slurm's launcher
//   mpiexec -n 2 build/release/kozero train DECK        under another one; without one: build/release/kozero train DECK
#pragma once
#include <string>
#include <vector>

namespace kozero::commands {

/// "key=value" that a deck's override reads as this text.
std::string text_override(const std::string& key, const std::string& value);

/// The word as a POSIX shell reads it back: in single quotes where it needs them.
std::string quoted_for_shell(const std::string& word);

/// Of overrides of one key only the last stays: it is the one that counts.
void drop_repeated_keys(std::vector<std::string>& arguments);

std::string command_line(const std::string& command, const std::vector<std::string>& arguments, int ranks);

}  // namespace kozero::commands
