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
#include "src/run/rank_placement.hpp"

namespace kozero::run {
namespace {

using Json = nlohmann::json;
using RankNumbers = std::vector<int>;

std::string json_of(const train::Runtime& runtime) {
  const io::RankProcess process = io::this_process();
  const CpuSet& cpus = runtime.cpus();
  CpuSet cores;
  for (const auto& core : cores_of(cpus)) cores.push_back(core.front());
  std::sort(cores.begin(), cores.end());
  return Json{{"host", process.host},    {"pid", process.pid},         {"threads", runtime.threads()},
              {"cpus", as_ranges(cpus)}, {"cores", as_ranges(cores)},  {"numa", as_ranges(numa_domains_of(cpus))},
              {"gpu", device_name()},    {"text", runtime.placement()}}
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

bool overlap(const std::set<int>& cores, const CpuSet& others) {
  return std::any_of(others.begin(), others.end(), [&](int core) { return cores.count(core) != 0; });
}

/// Ranks of one host, and the cores that they may use.
struct Sharers {
  RankNumbers ranks;
  std::set<int> cores;

  void take(Sharers&& other) {
    ranks.insert(ranks.end(), other.ranks.begin(), other.ranks.end());
    std::sort(ranks.begin(), ranks.end());
    cores.merge(other.cores);
  }
};

/// The ranks of a host in groups that have no core in common.
std::vector<Sharers> sharers_among(const RankNumbers& host, const std::vector<RankPlacement>& ranks) {
  std::vector<Sharers> groups;
  for (const int rank : host) {
    const CpuSet& cores = ranks[static_cast<std::size_t>(rank)].cores;
    Sharers group{{rank}, {cores.begin(), cores.end()}};
    for (auto other = groups.begin(); other != groups.end();) {
      if (!overlap(other->cores, cores)) {
        ++other;
        continue;
      }
      group.take(std::move(*other));
      other = groups.erase(other);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string note_on(const Sharers& sharers, const std::vector<RankPlacement>& ranks) {
  std::int64_t threads = 0;
  std::int64_t most = 0;
  for (const int rank : sharers.ranks) {
    const auto& placement = ranks[static_cast<std::size_t>(rank)];
    if (!placement.gpu.empty()) return "";
    threads += placement.threads;
    most = std::max(most, placement.threads);
  }
  const auto cores = std::ssize(sharers.cores);
  if (cores == 0 || threads <= cores) return "";
  const std::int64_t fewest = std::max<std::int64_t>(1, cores / std::ssize(sharers.ranks));
  const std::string fewer_ranks = sharers.ranks.size() == 1 ? "" : "start fewer ranks, ";
  const std::string fewer_threads = most > fewest ? fmt::format("give run.threads = {}, ", fewest) : "";
  return fmt::format(
      "{} on host {}: {} threads share {} ({}) and wait for each other: {}{}or let them have more cores "
      "(srun --cpus-per-task, mpiexec -bind-to)",
      named(sharers.ranks), ranks[static_cast<std::size_t>(sharers.ranks[0])].host, threads,
      cores == 1 ? "1 core" : fmt::format("{} cores", cores),
      (cores == 1 ? "CPU " : "CPUs ") + as_ranges({sharers.cores.begin(), sharers.cores.end()}), fewer_ranks,
      fewer_threads);
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
    for (const int rank : host) texts.push_back(ranks[static_cast<std::size_t>(rank)].text);
    const auto [like, is_new] = listed.try_emplace(texts, host);
    const std::string& name = ranks[static_cast<std::size_t>(host[0])].host;
    if (!is_new) {
      lines.push_back(fmt::format("  {:<11}{}: as {}", named(host), name, named(like->second)));
      continue;
    }
    for (std::size_t i = 0; i < host.size(); ++i) {
      lines.push_back(fmt::format("  {:<11}{}: {}", named({host[i]}), name, texts[i]));
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
    for (const auto& sharers : sharers_among(host, ranks)) {
      if (std::string note = note_on(sharers, ranks); !note.empty()) notes.push_back(std::move(note));
    }
  }
  return notes;
}

}  // namespace kozero::run
