// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// provenance.hpp: the origin of a run, as pairs of a name and a value, and the command that starts it again.
//   of the program   version, commit, compiler, kokkos, mpi, hdf5, products (what multiplies matrices), cuda
//   of a run         command, started, ranks, hosts, mpi_settings (variables that KoZeRO set for MPI; with several
//                    ranks), and all of the program
// `kozero --version` prints the first; deck.toml (comments at its beginning), log.txt and "provenance" in a
// checkpoint's manifest have the second. No hash of a dataset depends on them, and ranks do not compare them.
// The command is a line for a shell:
//   ./kozero.sh -n 2 train DECK 'data.text=["a b"]'     started by kozero.sh (it sets KOZERO_STARTED_BY)
//   srun -n 2 build/release/kozero train DECK           under Slurm's launcher
//   mpiexec -n 2 build/release/kozero train DECK        under another launcher
//   build/release/kozero train DECK                     without a launcher
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "io/run/run_status.hpp"

namespace kozero::run {

using Facts = std::vector<std::pair<std::string, std::string>>;

/// Needs neither MPI nor Kokkos. commit: "unknown" if the sources were built outside of git, with "+changes" if tracked
/// files differed from the commit. cuda: only in a program that was built with CUDA.
Facts program_facts();

/// The facts of a run that starts now by `command`, a line for a shell, on `ranks`.
Facts run_facts(const std::string& command, const std::vector<io::RankProcess>& ranks);

/// "commit       0123456789ab", one line per fact, in order.
std::vector<std::string> lines_of(const Facts& facts);

/// {"commit": "0123456789ab", ...}
std::string json_of(const Facts& facts);

/// "key=value" that a deck's override reads as this text.
std::string text_override(const std::string& key, const std::string& value);

/// The word as a shell reads it back: in single quotes if it needs them, as $'a\nb' if it has control characters.
std::string quoted_for_shell(const std::string& word);

/// Keeps only the last override of each key, which is the one in force.
void drop_repeated_keys(std::vector<std::string>& arguments);

/// What starts the ranks of a job: this build's mpiexec with its flags, or srun for this build's MPI; "{ranks}" stands
/// for their number.
std::string launcher();
std::string slurm_launcher();

std::string command_line(const std::string& command, const std::vector<std::string>& arguments, int ranks);

}  // namespace kozero::run
