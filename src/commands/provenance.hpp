// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// provenance.hpp: what made a run, as pairs of a name and a value.
//   of the program   version, commit, compiler, kokkos, mpi, hdf5, products (the library of matrix products), cuda
//   of a run         command, started, ranks, hosts, and all of the program
// `kozero --version` prints the first; deck.toml (comments at its beginning), log.txt and "provenance" in a
// checkpoint's manifest have the second. No hash of a dataset depends on them, and ranks do not compare them.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include <kozero/io/run/run_status.hpp>

namespace kozero::commands {

using Facts = std::vector<std::pair<std::string, std::string>>;

/// Needs neither MPI nor Kokkos up. commit: "unknown" where the sources were built outside of git, with "+changes"
/// where tracked files differed from it. cuda: only of a program that was built with it.
Facts program_facts();

/// Of a run that starts now by `command`, a line for a shell, on `ranks`.
Facts run_facts(const std::string& command, const std::vector<io::RankPlace>& ranks);

/// "commit       0123456789ab", a line a fact, in order.
std::vector<std::string> lines_of(const Facts& facts);

/// {"commit": "0123456789ab", ...}
std::string json_of(const Facts& facts);

}  // namespace kozero::commands
