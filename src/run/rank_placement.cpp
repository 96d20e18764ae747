// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rank_placement.cpp: gathers the ranks' placements as JSON, folds equal hosts, and finds ranks that share cores.
#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include <kozero/core/device.hpp>
#include <kozero/core/host.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/mpi_settings.hpp>
#include "src/run/rank_placement.hpp"

namespace kozero::run {
namespace {

using Json = nlohmann::json;
using RankNumbers = std::vector<int>;

std::string json_of(const train::Runtime& runtime) {
  const io::RankProcess process = io::this_process();
  const CpuSet& cpus = runtime.cpus();
  return Json{{"host", process.host},
              {"pid", process.pid},
              {"threads", runtime.threads()},
              {"cpus", as_ranges(cpus)},
              {"cores", as_ranges(core_numbers(cpus))},
              {"numa", as_ranges(numa_domains_of(cpus))},
              {"gpu", device_name()},
              {"text", runtime.placement()}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankPlacement placement_in(const std::string& text) {
  const Json json = Json::parse(text);
  return {{json.at("host"), json.at("pid"), json.at("threads"), json.at("cpus"), json.at("numa"), json.at("gpu")},
          numbers_in_ranges(json.at("cores")),
          json.at("text")};
}

std::string named(const RankNumbers& ranks) { return (ranks.size() == 1 ? "rank " : "ranks ") + as_ranges(ranks); }

/// The ranks of each host, hosts in the order of their first ranks.
std::vector<RankNumbers> by_host(const std::vector<RankPlacement>& ranks) {
  std::vector<RankNumbers> hosts;
  std::map<std::string, std::size_t> index;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto [entry, is_new] = index.try_emplace(ranks[r].host, hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[entry->second].push_back(static_cast<int>(r));
  }
  return hosts;
}

const RankPlacement& placement(const std::vector<RankPlacement>& ranks, int rank) {
  return ranks[static_cast<std::size_t>(rank)];
}

/// Ranks of one host, and cores that they may use.
struct Sharers {
  RankNumbers ranks;
  std::set<int> cores;
};

/// The ranks of a host in groups that have no core in common.
std::vector<Sharers> groups_of(const RankNumbers& host, const std::vector<RankPlacement>& ranks) {
  std::vector<Sharers> groups;
  for (const int rank : host) {
    const auto& cores = placement(ranks, rank).cores;
    Sharers group{{rank}, {cores.begin(), cores.end()}};
    std::erase_if(groups, [&](const Sharers& other) {
      const bool overlaps = std::ranges::any_of(cores, [&](int core) { return other.cores.contains(core); });
      if (overlaps) {
        group.ranks.insert(group.ranks.end(), other.ranks.begin(), other.ranks.end());
        group.cores.insert(other.cores.begin(), other.cores.end());
      }
      return overlaps;
    });
    std::ranges::sort(group.ranks);
    groups.push_back(std::move(group));
  }
  return groups;
}

std::int64_t threads_of(const RankNumbers& some, const std::vector<RankPlacement>& ranks) {
  std::int64_t threads = 0;
  for (const int rank : some) threads += placement(ranks, rank).threads;
  return threads;
}

/// The smallest set of cores with fewer cores than threads confined to it, and the ranks of these threads; no ranks if
/// there is none. The sets are those of the ranks and the whole group's.
Sharers crowded_part(const Sharers& group, const std::vector<RankPlacement>& ranks) {
  std::vector<std::set<int>> sets = {group.cores};
  for (const int rank : group.ranks) {
    const auto& cores = placement(ranks, rank).cores;
    sets.emplace_back(cores.begin(), cores.end());
  }
  std::ranges::stable_sort(sets, {}, [](const auto& cores) { return cores.size(); });
  for (const auto& cores : sets) {
    Sharers inside{{}, cores};
    for (const int rank : group.ranks) {
      if (std::ranges::includes(cores, placement(ranks, rank).cores)) inside.ranks.push_back(rank);
    }
    if (!cores.empty() && threads_of(inside.ranks, ranks) > std::ssize(cores)) return inside;
  }
  return {};
}

std::string note_on(const Sharers& crowded, const std::vector<RankPlacement>& ranks) {
  const auto cores = std::ssize(crowded.cores);
  const std::int64_t fewest = std::max<std::int64_t>(1, cores / std::ssize(crowded.ranks));
  const bool has_more =
      std::ranges::any_of(crowded.ranks, [&](int rank) { return placement(ranks, rank).threads > fewest; });
  const std::string fewer_ranks = crowded.ranks.size() == 1 ? "" : "start fewer ranks, ";
  const std::string fewer_threads = has_more ? fmt::format("give run.threads = {}, ", fewest) : "";
  const std::string numbers = as_ranges({crowded.cores.begin(), crowded.cores.end()});
  return fmt::format(
      "{} on host {}: {} threads share {} and wait for each other: {}{}or allow more cores (srun --cpus-per-task, "
      "mpiexec -bind-to)",
      named(crowded.ranks), placement(ranks, crowded.ranks[0]).host, threads_of(crowded.ranks, ranks),
      cores == 1 ? "core " + numbers : fmt::format("{} cores ({})", cores, numbers), fewer_ranks, fewer_threads);
}

/// "  rank 0     node1: ..."
std::string row(std::string who, const std::string& where) {
  constexpr std::size_t kWidth = 11;
  who.resize(std::max(who.size(), kWidth), ' ');
  return "  " + who + where;
}

}  // namespace

std::vector<RankPlacement> placements_of(const train::Runtime& runtime, distributed::Communicator& comm) {
  std::vector<RankPlacement> ranks;
  for (const auto& text : distributed::gather_text(comm, json_of(runtime))) ranks.push_back(placement_in(text));
  return ranks;
}

std::vector<std::string> placement_lines(const std::vector<RankPlacement>& ranks, const std::string& communicator) {
  const std::string key = "placement    ";
  if (ranks.size() == 1) return {key + ranks[0].text + ", communicator " + communicator};
  const auto hosts = by_host(ranks);
  std::vector<std::string> lines = {fmt::format("{}{} ranks on {} host{}, communicator {}", key, ranks.size(),
                                                hosts.size(), hosts.size() == 1 ? "" : "s", communicator)};
  std::map<std::vector<std::string>, RankNumbers> listed;  // a host's texts to its ranks
  for (const auto& host : hosts) {
    std::vector<std::string> texts;
    for (const int rank : host) texts.push_back(placement(ranks, rank).text);
    const auto [like, is_new] = listed.try_emplace(texts, host);
    const std::string& name = placement(ranks, host[0]).host;
    if (!is_new) {
      lines.push_back(row(named(host), name + ": as " + named(like->second)));
      continue;
    }
    for (std::size_t i = 0; i < host.size(); ++i) {
      lines.push_back(row(named({host[i]}), name + ": " + texts[i]));
    }
  }
  constexpr std::size_t kMost = 1 + kMostPlacementLines;
  if (lines.size() > kMost) {
    lines.resize(kMost);
    lines.emplace_back("  ...        all ranks are in ranks.json");
  }
  return lines;
}

std::vector<std::string> notes_on_shared_cores(const std::vector<RankPlacement>& ranks) {
  std::vector<std::string> notes;
  for (const auto& host : by_host(ranks)) {
    for (const auto& group : groups_of(host, ranks)) {
      const Sharers crowded = crowded_part(group, ranks);
      if (crowded.ranks.empty() || !placement(ranks, crowded.ranks[0]).gpu.empty()) continue;
      notes.push_back(note_on(crowded, ranks));
    }
  }
  return notes;
}

std::string note_on_messages(const std::vector<RankPlacement>& ranks, const char* transports) {
  const auto& set = distributed::settings_of_mpi();
  const std::string named = transports == nullptr ? "" : transports;
  const bool names_tcp = named.find("tcp") != std::string::npos && named[0] != '^';
  if (set.empty() || ranks.size() < 2 || (by_host(ranks).size() == 1 && !names_tcp)) return "";
  return fmt::format("set for MPI, since you set no others: {} (docs/communication.md#tcp)", distributed::text_of(set));
}

}  // namespace kozero::run
