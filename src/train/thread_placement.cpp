// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>

#include <kozero/train/thread_placement.hpp>

namespace kozero::train {
namespace {

using Cores = std::vector<CpuSet>;

/// Part `index` of `num_parts` equal, contiguous ones.
Cores part_of(const Cores& cores, int index, int num_parts) {
  const auto border = [&](int part) { return static_cast<std::ptrdiff_t>(cores.size()) * part / num_parts; };
  return {cores.begin() + border(index), cores.begin() + border(index + 1)};
}

CpuSet joined(const Cores& cores) {
  CpuSet cpus;
  for (const auto& core : cores) cpus.insert(cpus.end(), core.begin(), core.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::string named(const CpuSet& cpus) { return (cpus.size() == 1 ? "CPU " : "CPUs ") + as_ranges(cpus); }

std::string threads_text(int threads) { return std::to_string(threads) + (threads == 1 ? " thread" : " threads"); }

/// Why threads stay unbound; "" where they are bound.
std::string reason_against_binding(const Surroundings& given, const Cores& share, int threads) {
  std::string bind = given.proc_bind;
  std::transform(bind.begin(), bind.end(), bind.begin(), [](unsigned char letter) { return std::tolower(letter); });
  if (bind == "false") return "not bound: OMP_PROC_BIND=" + given.proc_bind;
  if (static_cast<std::size_t>(given.sharers) > given.cores.size()) return "not bound: there are more ranks than cores";
  if (static_cast<std::size_t>(threads) > share.size()) return "not bound: there are more threads than cores";
  if (!bind.empty() && given.sharers == 1) return "bound by OMP_PROC_BIND=" + given.proc_bind;
  return "";
}

/// "" where every thread can have a core.
std::string crowding_of(const Surroundings& given, int threads) {
  const auto cores = static_cast<int>(given.cores.size());
  if (cores == 0 || given.sharers * threads <= cores) return "";
  const std::string ranks = given.sharers == 1 ? "1 rank" : std::to_string(given.sharers) + " ranks";
  return ranks + " with " + threads_text(threads) + (given.sharers == 1 ? "" : " each") + " share " +
         std::to_string(cores) + (cores == 1 ? " core" : " cores") + " (" + named(joined(given.cores)) +
         "), threads wait for each other: start fewer ranks, give run.threads = " +
         std::to_string(std::max(1, cores / given.sharers)) +
         ", or let them have more cores (srun --cpus-per-task, mpiexec -bind-to)";
}

}  // namespace

ThreadPlacement thread_placement(const Surroundings& given) {
  const Cores share = part_of(given.cores, given.sharer, given.sharers);
  const CpuSet all = joined(given.cores);
  ThreadPlacement placement;
  placement.threads = given.asked_threads > 0 ? given.asked_threads : std::max(1, static_cast<int>(share.size()));
  placement.crowding = crowding_of(given, placement.threads);
  const std::string reason = reason_against_binding(given, share, placement.threads);
  if (!reason.empty()) {
    placement.text = threads_text(placement.threads) + " on " + named(all) + ", " + reason;
    return placement;
  }
  for (int thread = 0; thread < placement.threads; ++thread) {
    placement.cpus.push_back(joined(part_of(share, thread, placement.threads)));
  }
  placement.text = threads_text(placement.threads) + " bound to " + named(joined(share));
  if (given.sharers > 1) {
    placement.text += ", of " + as_ranges(all) + " shared by " + std::to_string(given.sharers) + " ranks";
  }
  return placement;
}

}  // namespace kozero::train
