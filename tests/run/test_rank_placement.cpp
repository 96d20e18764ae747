// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_rank_placement.cpp: the banner's lines on hosts, and notes on ranks that share cores.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/host.hpp>
#include <kozero/distributed/mpi_settings.hpp>
#include "src/run/rank_placement.hpp"

using kozero::as_ranges;
using kozero::CpuSet;
using kozero::run::note_on_messages;
using kozero::run::notes_on_shared_cores;
using kozero::run::placement_lines;
using kozero::run::RankPlacement;

namespace {

using Texts = std::vector<std::string>;

RankPlacement rank_on(const std::string& host, std::int64_t threads, const CpuSet& cores, const std::string& gpu = "") {
  RankPlacement rank;
  rank.host = host;
  rank.threads = threads;
  rank.cpus = as_ranges(cores);
  rank.gpu = gpu;
  rank.cores = cores;
  rank.text = std::to_string(threads) + " threads bound to CPUs " + rank.cpus;
  return rank;
}

}  // namespace

TEST_CASE("each rank has a line, and a host like an earlier one has one for all of its ranks") {
  CHECK(placement_lines({rank_on("a", 2, {0, 1})}, "self") ==
        Texts{"placement    2 threads bound to CPUs 0-1, communicator self"});
  CHECK(placement_lines({rank_on("a", 1, {0}), rank_on("b", 1, {0}), rank_on("a", 1, {1}), rank_on("b", 1, {1}),
                         rank_on("c", 1, {1})},
                        "mpi") == Texts{"placement    5 ranks on 3 hosts, communicator mpi",
                                        "  rank 0     a: 1 threads bound to CPUs 0",
                                        "  rank 2     a: 1 threads bound to CPUs 1", "  ranks 1,3  b: as ranks 0,2",
                                        "  rank 4     c: 1 threads bound to CPUs 1"});
}

TEST_CASE("many different ranks end in a reference to ranks.json") {
  std::vector<RankPlacement> ranks;
  for (int r = 0; r < 40; ++r) ranks.push_back(rank_on("a", 1, {r}));
  const Texts lines = placement_lines(ranks, "shm");
  REQUIRE(lines.size() == 34);
  CHECK(lines[32] == "  rank 31    a: 1 threads bound to CPUs 31");
  CHECK(lines[33] == "  ...        all ranks are in ranks.json");
}

TEST_CASE("more threads than cores are noted, with who shares what") {
  CHECK(notes_on_shared_cores({rank_on("a", 2, {0, 1}), rank_on("a", 2, {2, 3}), rank_on("b", 2, {0, 1})}).empty());
  CHECK(notes_on_shared_cores({rank_on("a", 2, {0, 1, 2, 3}), rank_on("a", 2, {0, 1, 2, 3})}).empty());
  CHECK(notes_on_shared_cores({rank_on("a", 3, {0, 1, 2, 3}), rank_on("a", 3, {0, 1, 2, 3})}) ==
        Texts{"ranks 0-1 on host a: 6 threads share 4 cores (0-3) and wait for each other: start fewer ranks, give "
              "run.threads = 2, or allow more cores (srun --cpus-per-task, mpiexec -bind-to)"});
  CHECK(notes_on_shared_cores({rank_on("a", 2, {0})}) ==
        Texts{"rank 0 on host a: 2 threads share core 0 and wait for each other: give run.threads = 1, or "
              "allow more cores (srun --cpus-per-task, mpiexec -bind-to)"});
}

TEST_CASE("CPUs that a launcher gave to several ranks are noted for each host") {
  // Ranks 0 and 3 overlap through rank 2 only; rank 1 has cores of its own, and so have all of host b.
  const auto notes = notes_on_shared_cores({rank_on("a", 2, {0, 1}), rank_on("a", 2, {8, 9}), rank_on("a", 2, {1, 2}),
                                            rank_on("a", 2, {2, 3}), rank_on("b", 2, {0, 1}), rank_on("b", 2, {2, 3})});
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with("ranks 0,2-3 on host a: 6 threads share 4 cores (0-3) and wait"));
}

TEST_CASE("ranks on one core are noted though a third may use more") {
  const auto notes =
      notes_on_shared_cores({rank_on("a", 1, {0}), rank_on("a", 1, {0, 1, 2, 3, 4, 5, 6, 7}), rank_on("a", 1, {0})});
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with("ranks 0,2 on host a: 2 threads share core 0 and wait"));
}

TEST_CASE("ranks that compute on GPUs may share cores") {
  CHECK(
      notes_on_shared_cores({rank_on("a", 4, {0}, "NVIDIA H100 at 0000:18:00.0"), rank_on("a", 4, {0}, "x")}).empty());
}

TEST_CASE("variables set for MPI are noted where messages may go over TCP") {
  const std::vector<RankPlacement> one_host = {rank_on("a", 1, {0}), rank_on("a", 1, {1})};
  const std::vector<RankPlacement> two_hosts = {rank_on("a", 1, {0}), rank_on("b", 1, {0})};
  CHECK(note_on_messages(two_hosts, nullptr).empty());  // nothing was set
  kozero::distributed::set_variables_of_mpi();
  const auto& set = kozero::distributed::settings_of_mpi();
  const std::string note = set.empty() ? ""  // another MPI
                                       : "set for MPI, since you set no others: " + kozero::distributed::text_of(set) +
                                             " (docs/communication.md#tcp)";
  CHECK(note_on_messages(two_hosts, nullptr) == note);
  CHECK(note_on_messages(one_host, "tcp,self") == note);
  for (const char* transports : {"", "posix,self", "^tcp"}) CHECK(note_on_messages(one_host, transports).empty());
  CHECK(note_on_messages(one_host, nullptr).empty());
  CHECK(note_on_messages({rank_on("a", 1, {0})}, "tcp").empty());
}
