// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// make_communicator.cpp: the table of back ends, and the choice that `auto` makes. A new back end is a row here and a
// source file.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include <kozero/core/choices.hpp>
#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include "src/distributed/back_ends.hpp"
#include "src/distributed/group_communicator.hpp"

namespace kozero::distributed {
namespace {

// The back end that `auto` chooses for these ranks; prints one line if a user would expect a faster one.
std::string choose(const Ranks& ranks, const CommunicatorOptions& options) {
  if (ranks.size() == 1) return "self";
  const std::string for_nccl = kHostIsDevice ? "" : nccl_unavailable_reason(ranks);
  if (!kHostIsDevice && for_nccl.empty()) return "nccl";
  const std::string for_shm = shm_unavailable_reason(ranks, options);
  const std::string taken = for_shm.empty() ? "shm" : "mpi";
  const std::string why = for_nccl + (for_nccl.empty() || for_shm.empty() ? "" : "; ") + for_shm;
  if (ranks.rank() == 0 && !why.empty()) options.notice("comm.backend = auto takes " + taken + ": " + why);
  return taken;
}

[[noreturn]] void refuse(const std::string& backend, const std::string& reason) {
  throw Error(Failure::deck, "comm.backend = " + backend + ": " + reason, Error::Seen::by_all_ranks);
}

struct BackEnd {
  const char* name;
  int most_ranks;
  bool on_one_node;    ///< serves ranks of one node only
  bool adds_in_order;  ///< whatever the options; with comm.exact every back end does
  bool reads_device_memory;
  /// Why the back end cannot serve these ranks and what to use instead; "" if it can. Collective.
  std::string (*refusal)(const Ranks&, const CommunicatorOptions&);
  std::unique_ptr<Communicator> (*make)(const Ranks&, MemoryLedger&, const CommunicatorOptions&);
  /// Books what `make` allocates on one of `size` ranks, for a plan.
  void (*book)(int size, MemoryLedger&, const CommunicatorOptions&);
};

std::string with_advice(const std::string& reason, const char* advice) {
  return reason.empty() ? "" : reason + "; " + advice;
}

/// Whether `size` ranks are on several nodes, equally many on each.
bool spans_nodes(int size, int ranks_per_node) {
  return ranks_per_node > 0 && ranks_per_node < size && size % ranks_per_node == 0;
}

constexpr int kAny = std::numeric_limits<int>::max();

constexpr std::array kBackEnds = {
    BackEnd{"self", 1, true, true, true, [](const Ranks&, const CommunicatorOptions&) { return std::string(); },
            [](const Ranks&, MemoryLedger&, const CommunicatorOptions&) { return make_self_communicator(); },
            [](int, MemoryLedger&, const CommunicatorOptions&) {}},
    BackEnd{"mpi", kAny, false, true, kHostIsDevice,
            [](const Ranks&, const CommunicatorOptions&) { return std::string(); },
            [](const Ranks& ranks, MemoryLedger& ledger, const CommunicatorOptions& options) {
              return over_nodes(make_mpi_communicator(ranks, ledger, options), ranks, ledger, options);
            },
            [](int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
              book_mpi_buffers(size, ledger, options);
              if (spans_nodes(size, options.ranks_per_node)) book_node_buffers(ledger, options);
            }},
    BackEnd{"shm", kAny, true, true, kHostIsDevice,
            [](const Ranks& ranks, const CommunicatorOptions& options) {
              return with_advice(shm_unavailable_reason(ranks, options), "take mpi, or auto");
            },
            [](const Ranks& ranks, MemoryLedger& ledger, const CommunicatorOptions& options) {
              return make_shm_communicator(ranks, ledger, options);
            },
            [](int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
              book_shm_window(size, ledger, options);
            }},
    BackEnd{"nccl", kAny, false, false, true,
            [](const Ranks& ranks, const CommunicatorOptions&) {
              return with_advice(nccl_unavailable_reason(ranks), "or take shm or mpi");
            },
            [](const Ranks& ranks, MemoryLedger& ledger, const CommunicatorOptions& options) {
              return make_nccl_communicator(ranks, ledger, options);
            },
            [](int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
              received_addends(size, ledger, options);
            }},
    BackEnd{"ring", kAny, false, false, kHostIsDevice,
            [](const Ranks&, const CommunicatorOptions&) { return std::string(); },
            [](const Ranks& ranks, MemoryLedger& ledger, const CommunicatorOptions& options) {
              return make_ring_communicator(ranks, ledger, options);
            },
            [](int, MemoryLedger& ledger, const CommunicatorOptions& options) { book_ring_buffers(ledger, options); }},
};

std::string too_many(const BackEnd& row, int size) {
  const std::string most = row.most_ranks == 1 ? "one rank" : std::to_string(row.most_ranks) + " ranks";
  return "it serves " + most + ", not " + std::to_string(size) + "; take auto";
}

/// The row of a name that check_backend_name accepted, except `auto`.
const BackEnd& back_end(const std::string& name) {
  return *std::ranges::find_if(kBackEnds, [&](const BackEnd& row) { return name == row.name; });
}

std::string backend_on(int size, const std::string& backend) { return size == 1 ? "self" : backend; }

/// Options for a group's communicator. It only gathers, so it needs no buffers for addends.
CommunicatorOptions options_of_group(CommunicatorOptions options, const std::string& backend) {
  constexpr std::int64_t kLeastBuffer = std::int64_t{64} << 10;
  if ((backend == "mpi" || backend == "ring") && kHostIsDevice)
    options.chunk_bytes = std::min(options.chunk_bytes, kLeastBuffer);
  options.exact = false;
  options.notice = [](const std::string&) {};  // the communicator of all ranks printed it
  return options;
}

/// Options for the replicas' communicator, whose ranks are `ranks_per_group` apart. It only gathers too.
CommunicatorOptions options_of_replicas(const CommunicatorOptions& options, const std::string& backend,
                                        int ranks_per_group) {
  CommunicatorOptions of_axis = options_of_group(options, backend);
  if (of_axis.ranks_per_node > 0) of_axis.ranks_per_node = std::max(of_axis.ranks_per_node / ranks_per_group, 1);
  return of_axis;
}

/// Bytes of host memory through which one of `size` ranks passes its arrays; 0 if the back end reads device memory.
std::int64_t staging_bytes(bool reads_device_memory, int size, const CommunicatorOptions& options) {
  return reads_device_memory ? 0 : StagedCommunicator::buffer_bytes(size, options.chunk_bytes);
}

std::shared_ptr<SimulatedLink> simulated_link(const CommunicatorOptions& options) {
  return std::make_shared<SimulatedLink>(options.throttle_gbit, options.latency_us);
}

/// make_communicator with what the rank's communicators share.
std::unique_ptr<Communicator> made(const std::string& backend, const Ranks& ranks, MemoryLedger& ledger,
                                   const CommunicatorOptions& options, const OfRank& of_rank) {
  const BackEnd& row = back_end(backend_of(backend, ranks, options));
  if (ranks.size() > row.most_ranks) refuse(row.name, too_many(row, ranks.size()));
  const std::string refusal = backend == "auto" ? "" : row.refusal(ranks, options);
  if (!refusal.empty()) refuse(row.name, refusal);
  return decorated(row.make(ranks, ledger, options), row.reads_device_memory, ranks, ledger, options, of_rank);
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
  const std::string text = "accepted are " + list_of(names);
  const std::string nearest = nearest_name(backend, names.data(), names.data() + names.size());
  refuse(backend, nearest.empty() ? text : text + "; nearest is " + nearest);
}

std::string backend_of(const std::string& backend, const Ranks& ranks, const CommunicatorOptions& options) {
  check_backend_name(backend);
  return backend == "auto" ? choose(ranks, options) : backend;
}

std::string simulated_network(const CommunicatorOptions& options) {
  std::string text = options.throttle_gbit > 0.0 ? fmt::format("{:g} Gbit/s", options.throttle_gbit) : "";
  if (options.latency_us > 0.0) {
    text += fmt::format("{}{:g} us per collective", text.empty() ? "" : " and ", options.latency_us);
  }
  return text;
}

bool adds_in_order(const std::string& backend, bool exact) { return exact || back_end(backend).adds_in_order; }

std::vector<std::string> back_ends_in_order(int size, bool on_one_node) {
  std::vector<std::string> names;
  for (const BackEnd& row : kBackEnds) {
    if (row.adds_in_order && size <= row.most_ranks && (on_one_node || !row.on_one_node)) names.emplace_back(row.name);
  }
  return names;
}

std::string assumed_backend(int size, bool on_gpus) {
  if (size == 1) return "self";
  return on_gpus ? "nccl" : "shm";
}

std::unique_ptr<Communicator> decorated(std::unique_ptr<Communicator> comm, bool reads_device_memory,
                                        const Ranks& ranks, MemoryLedger& ledger, const CommunicatorOptions& options,
                                        const OfRank& of_rank) {
  if (options.checks_calls && ranks.size() > 1) {
    comm = checked(std::move(comm), ranks, {.timeout_s = options.timeout_s});
  }
  if (staging_bytes(reads_device_memory, ranks.size(), options) > 0) {
    comm = std::make_unique<StagedCommunicator>(std::move(comm), ledger, options.chunk_bytes);
  }
  if ((options.throttle_gbit > 0.0 || options.latency_us > 0.0) && ranks.size() > 1) {
    auto link = of_rank.link ? of_rank.link : simulated_link(options);
    comm = std::make_unique<ThrottledCommunicator>(std::move(comm), std::move(link));
  }
  if (of_rank.counts != nullptr) {
    comm =
        std::make_unique<CountedCommunicator>(std::move(comm), of_rank.ranks_per_group, of_rank.counts, of_rank.joins);
  }
  return comm;
}

std::unique_ptr<Communicator> make_communicator(const std::string& backend, const Ranks& ranks, MemoryLedger& ledger,
                                                const CommunicatorOptions& options) {
  return made(backend, ranks, ledger, options, {});
}

std::unique_ptr<Communicator> make_planned_communicator(const std::string& backend, int rank, int size,
                                                        MemoryLedger& ledger, const CommunicatorOptions& options) {
  check_backend_name(backend);
  const BackEnd& row = back_end(backend == "auto" ? assumed_backend(size) : backend);
  if (size > row.most_ranks) refuse(row.name, too_many(row, size));
  row.book(size, ledger, options);
  const std::int64_t staging = staging_bytes(row.reads_device_memory, size, options);
  if (staging > 0) ledger.book(Memory::staging, "communication staging", staging);
  return std::make_unique<PlannedCommunicator>(rank, size);
}

MeshCommunicators make_mesh(const std::string& backend, const Ranks& ranks, int ranks_per_group, MemoryLedger& ledger,
                            const CommunicatorOptions& options) {
  const bool has_groups = ranks_per_group > 0 && ranks_per_group < ranks.size();
  MeshCommunicators mesh;
  const auto link = simulated_link(options);
  mesh.all = made(backend, ranks, ledger, options,
                  {.counts = mesh.counts, .ranks_per_group = has_groups ? ranks_per_group : 0, .link = link});
  if (!has_groups) return mesh;
  require(ranks.size() % ranks_per_group == 0, "make_mesh: the ranks are no whole number of groups");
  const std::string name = mesh.all->name();
  // An axis may fail on some ranks only: all ranks agree on the outcome.
  const RanksOfColor group(ranks, ranks.rank() / ranks_per_group);
  agreed(*mesh.all, [&] {
    const std::string of_group = backend_on(ranks_per_group, name);
    mesh.group = made(of_group, group.ranks(), ledger, options_of_group(options, of_group),
                      {.counts = mesh.counts, .joins = "group", .link = link});
  });
  const RanksOfColor replicas(ranks, ranks.rank() % ranks_per_group);
  agreed(*mesh.all, [&] {
    const CommunicatorOptions of_axis = options_of_replicas(options, name, ranks_per_group);
    mesh.replicas = made(name, replicas.ranks(), ledger, of_axis, {mesh.counts, 1, "replicas", link});
  });
  return mesh;
}

MeshCommunicators make_planned_mesh(const std::string& backend, int size, int ranks_per_group, MemoryLedger& ledger,
                                    const CommunicatorOptions& options) {
  const bool has_groups = ranks_per_group > 0 && ranks_per_group < size;
  const auto planned = [&](int ranks, const CommunicatorOptions& of_axis) {
    return make_planned_communicator(backend_on(ranks, backend), 0, ranks, ledger, of_axis);
  };
  MeshCommunicators mesh{.all = planned(size, options), .group = {}, .replicas = {}};
  if (!has_groups) return mesh;
  const std::string name = backend == "auto" ? assumed_backend(size) : backend;
  mesh.group = planned(ranks_per_group, options_of_group(options, name));
  mesh.replicas = planned(size / ranks_per_group, options_of_replicas(options, name, ranks_per_group));
  return mesh;
}

}  // namespace kozero::distributed
