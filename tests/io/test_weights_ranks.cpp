// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_weights_ranks.cpp: weights written on n ranks and read on m, for all n and m up to the number of ranks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <mpi.h>
#include <unistd.h>

#include <filesystem>

#include <kozero/distributed/make_communicator.hpp>
#include <support/thrown.hpp>

#include "src/distributed/group_communicator.hpp"

#include "weights_case.hpp"

namespace kozero::io {

using namespace tests;

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Calls `work(comm)` on the world's first `size` ranks; returns on all ranks together.
template <class Work>
void on_first_ranks(int size, const Work& work) {
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank() < size ? 0 : MPI_UNDEFINED, 0, &group);
  if (group != MPI_COMM_NULL) {
    MemoryLedger ledger;
    const auto comm = distributed::make_communicator(size == 1 ? "self" : "mpi", distributed::ranks_of(group), ledger);
    work(*comm);
    MPI_Comm_free(&group);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// A folder that all ranks use; rank 0 makes and removes it.
class SharedFolder {
 public:
  SharedFolder() {
    int number = ::getpid();
    MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
    path_ = fs::temp_directory_path() / ("kozero_weights_" + std::to_string(number));
    if (world_rank() == 0) fs::create_directories(path_);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~SharedFolder() {
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank() == 0) fs::remove_all(path_);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("weights written on n ranks are read on m, bit for bit") {
  const SharedFolder folder;
  const ParameterTable table = small_table();
  for (int writers = 1; writers <= world_size(); ++writers) {
    const std::string path = folder / ("weights_" + std::to_string(writers) + ".h5");
    on_first_ranks(writers, [&](distributed::Communicator& comm) {
      RankSlices mine(table, comm.rank(), comm.size());
      mine.set_values();
      write_weights(comm, path, table, mine.readable(), {R"({"arch": "small"})", 12, 3456});
    });
    for (int readers = 1; readers <= world_size(); ++readers) {
      on_first_ranks(readers, [&](distributed::Communicator& comm) {
        RankSlices mine(table, comm.rank(), comm.size());
        const auto description = read_weights(comm, path, table, mine.shards);
        CHECK(wrong_elements(table, mine) == 0);
        CHECK(description.model == R"({"arch": "small"})");
        CHECK(description.step == 12);
        CHECK(description.tokens == 3456);
      });
    }
    CHECK(!fs::exists(path + ".partial"));
  }
}

TEST_CASE("any shards are filled, whole units on every rank too") {
  const SharedFolder folder;
  const ParameterTable table = small_table();
  const std::string path = folder / "weights.h5";
  on_first_ranks(world_size(), [&](distributed::Communicator& comm) {
    RankSlices mine(table, comm.rank(), comm.size());
    mine.set_values();
    write_weights(comm, path, table, mine.readable(), {});
    RankSlices whole(table, 0, 1);
    read_weights(comm, path, table, whole.shards);
    CHECK(wrong_elements(table, whole) == 0);
  });
}

TEST_CASE("a failure on any rank is every rank's, with one text") {
  const SharedFolder folder;
  const ParameterTable table = small_table();
  on_first_ranks(world_size(), [&](distributed::Communicator& comm) {
    RankSlices mine(table, comm.rank(), comm.size());
    const auto nowhere = thrown_by([&] { write_weights(comm, folder / "no/where.h5", table, mine.readable(), {}); });
    CHECK(nowhere.status == 4);
    CHECK_THAT(nowhere.text, ContainsSubstring("no/where.h5.partial: cannot open: "));
    const auto missing = thrown_by([&] { read_weights(comm, folder / "none.h5", table, mine.shards); });
    CHECK(missing.status == 3);
    CHECK_THAT(missing.text, ContainsSubstring("none.h5: cannot open: "));
    auto twice = mine.readable();
    if (comm.rank() == 0) twice.push_back(twice.front());
    const auto uneven = thrown_by([&] { write_weights(comm, folder / "uneven.h5", table, twice, {}); });
    CHECK(uneven.status == 1);
    CHECK(!fs::exists(folder / "uneven.h5"));
  });
}

}  // namespace kozero::io
