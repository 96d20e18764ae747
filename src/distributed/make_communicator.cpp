// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// make_communicator.cpp: the table of back ends. A new one is a row here and a file of its own.
#include <mpi.h>
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include "src/distributed/back_ends.hpp"
#include "src/distributed/group_communicator.hpp"

namespace kozero::distributed {
namespace {

struct Group {
  const void* mpi_comm;
  int rank;
  int size;
};

Group group_of(const void* mpi_comm) {
  Group group{mpi_comm, 0, 1};
  const auto comm = *static_cast<const MPI_Comm*>(mpi_comm);
  check_mpi(MPI_Comm_rank(comm, &group.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &group.size), "MPI_Comm_size");
  return group;
}

// What `auto` means for these ranks; one line where it is not what they would expect.
std::string choose(const Group& group, const CommunicatorOptions& options) {
  if (group.size == 1) return "self";
  const std::string for_nccl = kHostIsDevice ? "" : nccl_unavailable_reason(group.mpi_comm);
  if (!kHostIsDevice && for_nccl.empty()) return "nccl";
  const std::string for_shm = shm_unavailable_reason(group.mpi_comm, options);
  const std::string taken = for_shm.empty() ? "shm" : "mpi";
  const std::string why = for_nccl + (for_nccl.empty() || for_shm.empty() ? "" : "; ") + for_shm;
  if (group.rank == 0 && !why.empty()) options.notice("comm.backend = auto takes " + taken + ": " + why);
  return taken;
}

[[noreturn]] void refuse(const std::string& backend, const std::string& reason) {
  throw Error(Failure::deck, "comm.backend = " + backend + ": " + reason, Error::Seen::by_all_ranks);
}

void book_staging(int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
  if (kHostIsDevice) return;
  ledger.book(Memory::staging, "communication staging", StagedCommunicator::buffer_bytes(size, options.chunk_bytes));
}

struct BackEnd {
  const char* name;
  int most_ranks;
  /// Why it cannot serve these ranks and what to take, "" where it can. Collective.
  std::string (*refusal)(const Group&, const CommunicatorOptions&);
  std::unique_ptr<Communicator> (*make)(const Group&, MemoryLedger&, const CommunicatorOptions&);
  /// What make takes on one of `size` ranks, for a plan.
  void (*book)(int size, MemoryLedger&, const CommunicatorOptions&);
};

std::string with_advice(const std::string& reason, const char* advice) {
  return reason.empty() ? "" : reason + "; " + advice;
}

/// Whether so many ranks are on several nodes, equally many on each.
bool spans_nodes(int size, int ranks_per_node) {
  return ranks_per_node > 0 && ranks_per_node < size && size % ranks_per_node == 0;
}

constexpr int kAny = std::numeric_limits<int>::max();

constexpr std::array kBackEnds = {
    BackEnd{"self", 1, [](const Group&, const CommunicatorOptions&) { return std::string(); },
            [](const Group&, MemoryLedger&, const CommunicatorOptions&) { return make_self_communicator(); },
            [](int, MemoryLedger&, const CommunicatorOptions&) {}},
    BackEnd{"mpi", kAny, [](const Group&, const CommunicatorOptions&) { return std::string(); },
            [](const Group& group, MemoryLedger& ledger, const CommunicatorOptions& options) {
              auto pairwise = make_mpi_communicator(group.mpi_comm, ledger, options);
              return for_device(over_nodes(std::move(pairwise), group.mpi_comm, ledger, options), ledger, options);
            },
            [](int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
              book_mpi_buffers(size, ledger, options);
              if (spans_nodes(size, options.ranks_per_node)) book_node_buffers(ledger, options);
              book_staging(size, ledger, options);
            }},
    BackEnd{"shm", kAny,
            [](const Group& group, const CommunicatorOptions& options) {
              return with_advice(shm_unavailable_reason(group.mpi_comm, options), "take mpi, or auto");
            },
            [](const Group& group, MemoryLedger& ledger, const CommunicatorOptions& options) {
              return for_device(make_shm_communicator(group.mpi_comm, ledger, options), ledger, options);
            },
            [](int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
              book_shm_window(size, ledger, options);
              book_staging(size, ledger, options);
            }},
    BackEnd{"nccl", kAny,
            [](const Group& group, const CommunicatorOptions&) {
              return with_advice(nccl_unavailable_reason(group.mpi_comm), "or take shm or mpi");
            },
            [](const Group& group, MemoryLedger& ledger, const CommunicatorOptions& options) {
              return make_nccl_communicator(group.mpi_comm, ledger, options);
            },
            [](int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
              received_addends(size, ledger, options);
            }},
};

std::string too_many(const BackEnd& row, int size) {
  const std::string most = row.most_ranks == 1 ? "one rank" : std::to_string(row.most_ranks) + " ranks";
  return "it serves " + most + ", not " + std::to_string(size) + "; take auto";
}

/// The row of a name that check_backend_name accepted, but for `auto`.
const BackEnd& back_end(const std::string& name) {
  return *std::ranges::find_if(kBackEnds, [&](const BackEnd& row) { return name == row.name; });
}

}  // namespace

const std::vector<std::string>& backend_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"auto"};
    for (const BackEnd& row : kBackEnds) all.emplace_back(row.name);
    return all;
  }();
  return names;
}

void check_backend_name(const std::string& backend) {
  const auto& names = backend_names();
  if (std::find(names.begin(), names.end(), backend) != names.end()) return;
  std::string text = "accepted are ";
  for (const auto& name : names) text += (name == names.front() ? "" : ", ") + name;
  const std::string nearest = nearest_name(backend, names.data(), names.data() + names.size());
  refuse(backend, nearest.empty() ? text : text + "; nearest is " + nearest);
}

std::string backend_of(const std::string& backend, const void* mpi_comm, const CommunicatorOptions& options) {
  check_backend_name(backend);
  return backend == "auto" ? choose(group_of(mpi_comm), options) : backend;
}

std::string assumed_backend(int size, bool on_gpus) {
  if (size == 1) return "self";
  return on_gpus ? "nccl" : "shm";
}

std::unique_ptr<Communicator> for_device(std::unique_ptr<Communicator> comm, MemoryLedger& ledger,
                                         const CommunicatorOptions& options) {
  if (kHostIsDevice) return comm;
  return std::make_unique<StagedCommunicator>(std::move(comm), ledger, options.chunk_bytes);
}

std::unique_ptr<Communicator> make_communicator(const std::string& backend, const void* mpi_comm, MemoryLedger& ledger,
                                                const CommunicatorOptions& options) {
  const BackEnd& row = back_end(backend_of(backend, mpi_comm, options));
  const Group group = group_of(mpi_comm);
  if (group.size > row.most_ranks) refuse(row.name, too_many(row, group.size));
  const std::string refusal = backend == "auto" ? "" : row.refusal(group, options);
  if (!refusal.empty()) refuse(row.name, refusal);
  return row.make(group, ledger, options);
}

std::unique_ptr<Communicator> make_planned_communicator(const std::string& backend, int rank, int size,
                                                        MemoryLedger& ledger, const CommunicatorOptions& options) {
  check_backend_name(backend);
  const BackEnd& row = back_end(backend == "auto" ? assumed_backend(size) : backend);
  if (size > row.most_ranks) refuse(row.name, too_many(row, size));
  row.book(size, ledger, options);
  return std::make_unique<PlannedCommunicator>(rank, size);
}

namespace {

std::string backend_on(int size, const std::string& backend) { return size == 1 ? "self" : backend; }

/// Of a group's communicator, which gathers alone: it adds nothing, and needs no buffers for addends.
CommunicatorOptions options_of_group(CommunicatorOptions options, const std::string& backend) {
  constexpr std::int64_t kLeastBuffer = std::int64_t{64} << 10;
  if (backend == "mpi" && kHostIsDevice) options.chunk_bytes = std::min(options.chunk_bytes, kLeastBuffer);
  options.exact = false;
  options.notice = [](const std::string&) {};  // that of all ranks has said it
  return options;
}

/// Replicas gather alone too, and are `ranks_a_group` ranks apart.
CommunicatorOptions options_of_replicas(const CommunicatorOptions& options, const std::string& backend,
                                        int ranks_a_group) {
  CommunicatorOptions of_axis = options_of_group(options, backend);
  if (of_axis.ranks_per_node > 0) of_axis.ranks_per_node = std::max(of_axis.ranks_per_node / ranks_a_group, 1);
  return of_axis;
}

}  // namespace

MeshCommunicators make_mesh(const std::string& backend, const void* mpi_comm, int ranks_a_group, MemoryLedger& ledger,
                            const CommunicatorOptions& options) {
  const Group all = group_of(mpi_comm);
  const bool has_groups = ranks_a_group > 0 && ranks_a_group < all.size;
  MeshCommunicators mesh;
  mesh.all = std::make_unique<CountedCommunicator>(make_communicator(backend, mpi_comm, ledger, options),
                                                   has_groups ? ranks_a_group : 0);
  if (!has_groups) return mesh;
  require(all.size % ranks_a_group == 0, "make_mesh: the ranks are no whole number of groups");
  const std::string name = mesh.all->name();
  // One axis may fail on some ranks alone: all learn it.
  const RanksOfColor group(mpi_comm, all.rank / ranks_a_group);
  agreed(*mesh.all, [&] {
    const std::string of_group = backend_on(ranks_a_group, name);
    mesh.group = std::make_unique<CountedCommunicator>(
        make_communicator(of_group, group.handle(), ledger, options_of_group(options, of_group)));
  });
  const RanksOfColor replicas(mpi_comm, all.rank % ranks_a_group);
  agreed(*mesh.all, [&] {
    mesh.replicas = std::make_unique<CountedCommunicator>(
        make_communicator(name, replicas.handle(), ledger, options_of_replicas(options, name, ranks_a_group)), 1);
  });
  return mesh;
}

MeshCommunicators make_planned_mesh(const std::string& backend, int size, int ranks_a_group, MemoryLedger& ledger,
                                    const CommunicatorOptions& options) {
  const bool has_groups = ranks_a_group > 0 && ranks_a_group < size;
  const auto planned = [&](int ranks, const CommunicatorOptions& of_axis, int of_group) {
    return std::make_unique<CountedCommunicator>(
        make_planned_communicator(backend_on(ranks, backend), 0, ranks, ledger, of_axis), of_group);
  };
  MeshCommunicators mesh{.all = planned(size, options, has_groups ? ranks_a_group : 0), .group = {}, .replicas = {}};
  if (!has_groups) return mesh;
  const std::string name = backend == "auto" ? assumed_backend(size) : backend;
  mesh.group = planned(ranks_a_group, options_of_group(options, name), 0);
  mesh.replicas = planned(size / ranks_a_group, options_of_replicas(options, name, ranks_a_group), 1);
  return mesh;
}

std::array<CollectiveCount, 2> MeshCommunicators::counts() const {
  auto sum = all->counts();
  for (const auto* axis : {group.get(), replicas.get()}) {
    for (std::size_t i = 0; axis != nullptr && i < sum.size(); ++i) {
      sum[i].calls += axis->counts()[i].calls;
      sum[i].bytes += axis->counts()[i].bytes;
      sum[i].bytes_across += axis->counts()[i].bytes_across;
      sum[i].seconds += axis->counts()[i].seconds;
      const auto& waited = axis->counts()[i].waited;
      sum[i].waited = sum[i].waited && waited ? std::optional(*sum[i].waited + *waited) : std::nullopt;
    }
  }
  return sum;
}

void MeshCommunicators::reset() {
  for (auto* axis : {all.get(), group.get(), replicas.get()}) {
    if (axis != nullptr) axis->reset();
  }
}

}  // namespace kozero::distributed
