// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rank_placement.hpp: where each rank of a job runs: its host, threads, CPUs, NUMA domains and GPU.
#pragma once
#include <string>
#include <vector>

#include <kozero/distributed/communicator.hpp>
#include <kozero/run/session.hpp>
#include <kozero/train/runtime.hpp>

namespace kozero::run {

/// The placements of all ranks, in rank order. Collective.
std::vector<RankPlacement> placements_of(const train::Runtime& runtime, distributed::Communicator& comm);

/// The banner's lines. One rank:
///   placement    2 threads bound to CPUs 0-1, NUMA domain 0, communicator self
/// Several, where hosts with the same placement as an earlier host are one line:
///   placement    4 ranks on 2 hosts, communicator mpi
///     rank 0     node1: 1 thread bound to CPU 0, of 0-1 shared by 2 ranks, NUMA domain 0
///     rank 1     node1: 1 thread bound to CPU 1, of 0-1 shared by 2 ranks, NUMA domain 0
///     ranks 2-3  node2: as ranks 0-1
/// At most kMostPlacementLines ranks or hosts are listed; ranks.json has all.
inline constexpr int kMostPlacementLines = 32;
std::vector<std::string> placement_lines(const std::vector<RankPlacement>& ranks, const std::string& communicator);

/// For each host, and there for each group of ranks whose cores overlap: the smallest set of cores that has fewer cores
/// than the ranks confined to it have threads, with these ranks and advice. None for ranks with GPUs.
std::vector<std::string> notes_on_shared_cores(const std::vector<RankPlacement>& ranks);

/// The variables that KoZeRO set for MPI, if messages may go over TCP: on several hosts, or if `transports` (UCX_TLS;
/// may be nullptr) names tcp. "" otherwise.
std::string note_on_messages(const std::vector<RankPlacement>& ranks, const char* transports);

}  // namespace kozero::run
