// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <limits.h>
#include <unistd.h>
#include <algorithm>

#include <fmt/format.h>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/io/memory.hpp>

#include "banner.hpp"
#include "memory_room.hpp"

namespace kozero::commands {
namespace {

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / kMiB; }

/// What this rank may take.
plan::DeviceAndHost room_of(Session& session) {
  const std::int64_t on_host = io::available_memory() / std::max(1, session.environment().local_ranks());
  return {kHostIsDevice ? on_host : device_memory().free / ranks_a_gpu(session), on_host};
}

/// The least that any rank has.
plan::DeviceAndHost least_room(Session& session) {
  const plan::DeviceAndHost mine = room_of(session);
  const auto rooms =
      session.control().gather_control({static_cast<double>(mine.device), static_cast<double>(mine.host)});
  plan::DeviceAndHost least = mine;
  for (std::size_t i = 0; i < rooms.size(); i += 2) {
    least.device = std::min(least.device, static_cast<std::int64_t>(rooms[i]));
    least.host = std::min(least.host, static_cast<std::int64_t>(rooms[i + 1]));
  }
  return least;
}

std::string largest_part(const plan::MemoryPlan& plan) {
  const auto largest = std::max_element(plan.bytes.begin(), plan.bytes.end());
  const auto name = kMemoryNames[static_cast<std::size_t>(largest - plan.bytes.begin())];
  return fmt::format("{:.0f} of {}", mib(*largest), name);
}

}  // namespace

int ranks_a_gpu(Session& session) {
  std::string node(HOST_NAME_MAX + 1, '\0');
  static_cast<void>(gethostname(node.data(), node.size()));
  const std::string mine = std::string(node.c_str()) + " " + device_name();
  const auto all = dist::gather_text(session.control(), mine);
  return static_cast<int>(std::count(all.begin(), all.end(), mine));
}

void require_room(const plan::MemoryPlan& plan, Session& session, std::int64_t data_vocab) {
  const plan::DeviceAndHost room = least_room(session);
  const plan::DeviceAndHost need = plan.needed();
  if (need.fit(room)) return;
  const auto plans = plan::plans_of_all_stages(session.deck(), session.backend(), plan.num_ranks, data_vocab);
  const auto lowest =
      std::find_if(plans.begin(), plans.end(), [&](const plan::MemoryPlan& each) { return each.needed().fit(room); });
  const std::string advice = lowest == plans.end()
                                 ? "no stage fits: use more ranks, a smaller train.micro_batch or model"
                                 : fmt::format("the lowest stage that fits is {}", lowest->stage);
  const bool of_gpu = !kHostIsDevice && room.device > 0 && need.device > room.device;
  throw Error(Failure::deck,
              fmt::format("the run needs {:.0f} MiB{} a rank ({}) and {:.0f} MiB are available; {} (`kozero plan` "
                          "shows each part)",
                          mib(of_gpu ? need.device : need.host), of_gpu ? " of GPU memory" : "", largest_part(plan),
                          mib(of_gpu ? room.device : room.host), advice),
              Error::Seen::by_all_ranks);
}

MemoryUse::MemoryUse() : free_at_start_(device_memory().free) {}

std::int64_t MemoryUse::taken(Session& session) const {
  if (kHostIsDevice) return io::resident_memory().peak - io::shares_of_others();
  return (free_at_start_ - device_memory().free) / ranks_a_gpu(session);
}

}  // namespace kozero::commands
