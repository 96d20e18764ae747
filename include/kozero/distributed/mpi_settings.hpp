// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mpi_settings.hpp: the variables of the environment that KoZeRO sets for the MPI library before it starts.
//   UCX_TLS=^posix                                 a /dev/shm too small for UCX's transport "posix"
//   UCX_TCP_TX_SEG_SIZE, UCX_TCP_RX_SEG_SIZE       messages over TCP
// A variable that the user set is kept.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include <kozero/distributed/environment.hpp>

namespace kozero::distributed {

/// Variables and their values.
using MpiSettings = std::vector<std::pair<std::string, std::string>>;

/// For messages over TCP of MPICH on UCX: segments of 256 KiB, so that messages of up to this size leave at once. With
/// UCX's own segments of 8 KiB, every larger message first waits for an answer of the receiver. Nothing for another
/// `library` (library_description), or if one of UCX_TCP_TX_SEG_SIZE, UCX_TCP_RX_SEG_SIZE and UCX_RNDV_THRESH is set.
/// No other transport of UCX reads these variables.
MpiSettings settings_for_tcp(const Variables& variables, const std::string& library);

/// The text of MPI_Get_library_version, of several lines; may be called at any time.
std::string library_description();

/// Before MPI starts, and before this process has other threads, which may read the environment.
void set_variables_of_mpi();

/// What set_variables_of_mpi() set.
const MpiSettings& settings_of_mpi();

/// "UCX_TLS=^posix", with blanks between several.
std::string text_of(const MpiSettings& settings);

}  // namespace kozero::distributed
