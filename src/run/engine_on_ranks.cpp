// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// engine_on_ranks.cpp: the room that a rank has, the refusal with advice if a plan exceeds it, and memory in use.
#include <fmt/format.h>
#include <algorithm>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/run/engine_on_ranks.hpp>
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"

namespace kozero::run {
namespace {

/// The memory that a rank may allocate.
struct Room {
  plan::DeviceAndHost bytes;
  bool is_of_process = false;  ///< `ulimit -v` is less than the node's memory
};

Room room_of(Session& session) {
  const std::int64_t on_node =
      io::available_memory() / std::clamp(session.environment().local_ranks(), 1, session.control().size());
  const std::int64_t on_host = std::min(on_node, io::address_space_left());
  return {{kHostIsDevice ? on_host : device_memory().free / ranks_per_gpu(session), on_host}, on_host < on_node};
}

/// The least room of any rank.
struct LeastRoom {
  plan::DeviceAndHost bytes;
  std::string where;  ///< " on host a (ulimit -v)": of the host's memory; the host is named if ranks have several
};

LeastRoom least_room(Session& session) {
  const Room mine = room_of(session);
  const std::vector<Room> rooms = distributed::from_all_ranks(session.control(), mine);
  const std::vector<std::string> hosts = distributed::gather_text(session.control(), host_name());
  const auto least = std::min_element(rooms.begin(), rooms.end(),
                                      [](const Room& a, const Room& b) { return a.bytes.host < b.bytes.host; });
  LeastRoom found{least->bytes, ""};
  for (const Room& room : rooms) found.bytes.device = std::min(found.bytes.device, room.bytes.device);
  const bool are_several = std::count(hosts.begin(), hosts.end(), hosts[0]) < std::ssize(hosts);
  if (are_several) found.where = " on host " + hosts[static_cast<std::size_t>(least - rooms.begin())];
  if (least->is_of_process) found.where += " (ulimit -v)";
  return found;
}

std::string largest_part(const plan::MemoryPlan& plan) {
  const auto largest = std::max_element(plan.bytes.begin(), plan.bytes.begin() + static_cast<int>(Memory::disk));
  const auto name = kMemoryNames[static_cast<std::size_t>(largest - plan.bytes.begin())];
  return fmt::format("{} of {}", io::readable_bytes(*largest), name);
}

std::string advice_for_training(Session& session, int num_ranks, std::int64_t data_vocab,
                                const plan::DeviceAndHost& room) {
  const auto plans = plan::plans_of_all_stages(session.deck(), session.backend(), num_ranks, data_vocab);
  const auto lowest =
      std::find_if(plans.begin(), plans.end(), [&](const plan::MemoryPlan& each) { return each.needed().fit(room); });
  if (lowest != plans.end()) return fmt::format("the lowest stage that fits is {}", lowest->stage);
  const auto fit = plan::first_fit(session.deck(), session.backend(), num_ranks, data_vocab, room);
  return fit ? "it fits with " + plan::text_of(fit->changes) : "nothing fits: use more ranks or a smaller model";
}

/// Tries sharded weights, micro-batches of one sequence, then both; the first that fits is the advice.
std::string advice_for_weights(Session& session, const train::Settings& settings, const plan::DeviceAndHost& room) {
  struct Remedy {
    plan::Change change;
    void (*apply)(train::Settings&);
  };
  const Remedy sharded{{"zero.stage", "3"}, [](train::Settings& changed) { changed.zero.stage = 3; }};
  const Remedy single{{"train.micro_batch", "1"}, [](train::Settings& changed) { changed.batch.micro_batch = 1; }};
  for (const auto& remedies : {std::vector{sharded}, std::vector{single}, std::vector{sharded, single}}) {
    train::Settings changed = settings;
    std::vector<plan::Change> changes;
    for (const Remedy& remedy : remedies) {
      remedy.apply(changed);
      changes.push_back(remedy.change);
    }
    if (session.plan_of(changed).needed().fit(room)) return "it fits with " + plan::text_of(changes);
  }
  return "use more ranks with zero.stage=3";
}

bool lacks_gpu_memory(const plan::DeviceAndHost& need, const plan::DeviceAndHost& room) {
  return !kHostIsDevice && room.device > 0 && need.device > room.device;
}

std::string needed_and_available(const plan::DeviceAndHost& need, const LeastRoom& room, const std::string& part) {
  const bool of_gpu = lacks_gpu_memory(need, room.bytes);
  return fmt::format("needs {}{} per rank{} and {} are available{}",
                     io::readable_bytes(of_gpu ? need.device : need.host), of_gpu ? " of GPU memory" : "", part,
                     io::readable_bytes(of_gpu ? room.bytes.device : room.bytes.host), of_gpu ? "" : room.where);
}

}  // namespace

plan::MemoryPlan require_room(Session& session, const train::Settings& settings, std::int64_t data_vocab) {
  const plan::MemoryPlan plan = session.plan_of(settings);
  const LeastRoom room = least_room(session);
  const plan::DeviceAndHost need = plan.needed();
  if (need.fit(room.bytes)) return plan;
  const std::string needed = needed_and_available(need, room, fmt::format(" ({})", largest_part(plan)));
  const std::string text =
      settings.use == train::Use::training
          ? fmt::format("the run {}; {} (`kozero plan` shows each part)", needed,
                        advice_for_training(session, plan.num_ranks, data_vocab, room.bytes))
          : fmt::format("{} {}; {}", settings.use == train::Use::evaluation ? "evaluation" : "generation", needed,
                        advice_for_weights(session, settings, room.bytes));
  throw Error(Failure::deck, text, Error::Seen::by_all_ranks);
}

void require_room_for(std::int64_t bytes, const std::string& what, const std::string& remedy, Session& session) {
  const plan::DeviceAndHost need{bytes, kHostIsDevice ? bytes : 0};
  const LeastRoom room = least_room(session);
  if (need.fit(room.bytes)) return;
  throw Error(Failure::deck, fmt::format("{} {}; {}", what, needed_and_available(need, room, ""), remedy),
              Error::Seen::by_all_ranks);
}

EngineOnRanks::EngineOnRanks(Session& session, const train::Settings& settings, std::int64_t data_vocab,
                             const std::function<void()>& connected)
    : plan_(require_room(session, settings, data_vocab)), mesh_(session.connect(settings, ledger_)) {
  if (connected) connected();
  evaluator_ = train::make_evaluator(settings, mesh_.mesh(), ledger_);
}

train::Engine& EngineOnRanks::engine() const {
  auto* const engine = dynamic_cast<train::Engine*>(evaluator_.get());
  require(engine != nullptr, "an evaluator is to train");
  return *engine;
}

MemoryUse::MemoryUse()
    : free_at_start_(device_memory().free),
      before_(kHostIsDevice ? io::resident_memory().current - io::shares_of_others() : 0) {}

std::int64_t MemoryUse::taken(Session& session) const {
  if (kHostIsDevice) return io::resident_memory().peak - io::shares_of_others();
  return (free_at_start_ - device_memory().free) / ranks_per_gpu(session);
}

int ranks_per_gpu(Session& session) {
  const std::string mine = host_name() + " " + device_name();
  const auto all = distributed::gather_text(session.control(), mine);
  return static_cast<int>(std::count(all.begin(), all.end(), mine));
}

}  // namespace kozero::run
