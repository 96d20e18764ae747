// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench_step.cpp: the profile of a deck's training steps: each kernel's share, and the time in which no kernel runs.
// --json also has the newest step's events on rank 0: phases, collectives that were started, and calls for collectives.
// The time without kernels is communication that nothing hides, reading of data, and on a GPU a host that is late. The
// host waits for the GPU once per step, for as long as it was ahead.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/core/views.hpp>
#include <kozero/run/kernel_profile.hpp>
#include <kozero/run/unsaved_run.hpp>
#include "src/bench/bench.hpp"

namespace kozero::bench {
namespace {

using run::open_data_of;
using run::Session;
using run::UnsavedRun;

/// In the order of Event::Kind.
constexpr std::array<const char*, 3> kNamesOfKinds = {"phase", "start", "call"};

/// A step's kernels, from the records of some steps.
struct KernelTimes {
  struct Kernel {
    std::string name;
    std::int64_t calls = 0;
    double seconds = 0.0;
  };
  std::vector<Kernel> kernels;  ///< the longest first
  double in_kernels = 0.0;      ///< seconds
  double span = 0.0;            ///< seconds from the first kernel's begin to the last one's end

  [[nodiscard]] double idle_share() const { return 1.0 - in_kernels / span; }
};

KernelTimes times_of(const run::KernelProfile::Record& record) {
  require(!record.intervals.empty(), "bench step: no kernel ran");
  KernelTimes times;
  for (const auto& name : record.names) times.kernels.push_back({name});
  for (const auto& interval : record.intervals) {
    KernelTimes::Kernel& kernel = times.kernels[interval.name];
    ++kernel.calls;
    kernel.seconds += interval.end_s - interval.begin_s;
    times.in_kernels += interval.end_s - interval.begin_s;
  }
  times.span = record.intervals.back().end_s - record.intervals.front().begin_s;
  std::ranges::sort(times.kernels, std::greater<>(), &KernelTimes::Kernel::seconds);
  return times;
}

struct Measured {
  run::KernelProfile::Record record;
  KernelTimes profile;
  std::array<distributed::CollectiveCount, 2> collectives;
  std::int64_t tokens = 0;  ///< per step
  double steps = 0.0;

  [[nodiscard]] double milliseconds(double seconds) const { return 1e3 * seconds / steps; }
};

Measured measure(UnsavedRun& run, run::KernelProfile& profile, std::int64_t steps) {
  for (std::int64_t step = 1; step <= kFirstSteps; ++step) static_cast<void>(run.step(step));
  warm_up_device();
  run.mesh().counts->reset();
  Measured measured;
  profile.start();
  for (std::int64_t step = kFirstSteps + 1; step <= kFirstSteps + steps; ++step) {
    measured.tokens = run.step(step).tokens;
  }
  measured.record = profile.stop();
  measured.profile = times_of(measured.record);
  measured.collectives = run.mesh().counts->rows();
  measured.steps = static_cast<double>(steps);
  return measured;
}

/// Seconds in the collective's calls, without the rank's waits.
std::optional<double> moving(const distributed::CollectiveCount& count) {
  return count.waited ? std::optional(count.seconds - *count.waited) : std::nullopt;
}

/// The host's waits for kernels per step.
double waits_per_step(const Measured& measured) {
  std::int64_t calls = 0;
  for (const auto& wait : measured.record.waits) calls += wait.calls;
  return static_cast<double>(calls) / measured.steps;
}

void print_table(const Measured& measured) {
  const auto& profile = measured.profile;
  std::cout << fmt::format("{:<38}{:>12}{:>12}{:>10}\n", "kernel", "calls", "ms per step", "of step");
  for (const auto& kernel : profile.kernels) {
    std::cout << fmt::format("{:<38}{:>12.1f}{:>12.3f}{:>8.1f} %\n", kernel.name,
                             static_cast<double>(kernel.calls) / measured.steps, measured.milliseconds(kernel.seconds),
                             100.0 * kernel.seconds / profile.span);
  }
  for (const auto& one : measured.collectives) {
    if (one.calls == 0) continue;
    const auto part = [&](const std::string& name, const std::string& calls, std::optional<double> seconds) {
      std::cout << fmt::format("{:<38}{:>12}", name, calls)
                << (seconds ? fmt::format("{:>12.3f}{:>8.1f} %\n", measured.milliseconds(*seconds),
                                          100.0 * *seconds / profile.span)
                            : fmt::format("{:>12}{:>10}\n", "-", "-"));
    };
    part(fmt::format("in calls of {}", one.collective),
         fmt::format("{:.1f}", static_cast<double>(one.calls) / measured.steps), one.seconds);
    part("  waiting for other ranks", "", one.waited);
    part("  moving and adding", "", moving(one));
  }
  std::cout << fmt::format(
      "{:.3f} ms per step ({:.0f} tokens/s over all ranks), {:.3f} ms of it in kernels; idle share = 1 - in kernels / "
      "(first kernel's begin to last one's end) = {:.1f} %\n",
      measured.milliseconds(profile.span), static_cast<double>(measured.tokens) * measured.steps / profile.span,
      measured.milliseconds(profile.in_kernels), 100.0 * profile.idle_share());
  std::cout << fmt::format("per step the host allocated arrays {:.1f} times and waited for kernels {:.1f} times\n",
                           static_cast<double>(measured.record.allocations) / measured.steps, waits_per_step(measured));
  std::cout << fmt::format("{:<38}{:>12}{:>12}\n", "wait", "calls", "ms per step");
  for (const auto& wait : measured.record.waits) {
    std::cout << fmt::format("{:<38}{:>12.1f}{:>12.3f}\n", wait.name, static_cast<double>(wait.calls) / measured.steps,
                             measured.milliseconds(wait.seconds));
  }
}

/// The main thread's events of a step, with seconds since the first one. A start of a collective has no end.
nlohmann::ordered_json json_of_events(std::int64_t step) {
  const auto of_step = [&](const Event& event) { return event.step == step && !event.of_saver; };
  const std::vector<Event> all = events().newest(EventRing::kCapacity, of_step);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Event& event : all) {
    const auto since_first = [&](Event::Clock::time_point time) {
      return std::chrono::duration<double>(time - all.front().begin).count();
    };
    const bool ended = event.end >= event.begin;
    rows.push_back({{"event", event.name},
                    {"kind", kNamesOfKinds.at(static_cast<std::size_t>(event.kind))},
                    {"phase", event.phase},
                    {"unit", event.unit},
                    {"begin_s", since_first(event.begin)},
                    {"end_s", ended ? nlohmann::ordered_json(since_first(event.end)) : nullptr}});
  }
  return rows;
}

nlohmann::ordered_json json_of(const Measured& measured) {
  const auto& profile = measured.profile;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& kernel : profile.kernels) {
    rows.push_back({{"kernel", kernel.name},
                    {"calls", static_cast<double>(kernel.calls) / measured.steps},
                    {"seconds", kernel.seconds / measured.steps}});
  }
  nlohmann::ordered_json collectives = nlohmann::ordered_json::array();
  for (const auto& one : measured.collectives) {
    collectives.push_back({{"collective", one.collective},
                           {"calls", static_cast<double>(one.calls) / measured.steps},
                           {"seconds", one.seconds / measured.steps},
                           {"waited_s", nullptr}});
    if (one.waited) collectives.back()["waited_s"] = *one.waited / measured.steps;
  }
  return {{"kernels", rows},
          {"collectives", collectives},
          {"step_s", profile.span / measured.steps},
          {"in_kernels_s", profile.in_kernels / measured.steps},
          {"idle_share", profile.idle_share()},
          {"waits", waits_per_step(measured)},
          {"allocations", static_cast<double>(measured.record.allocations) / measured.steps},
          {"events", json_of_events(position().step)}};
}

}  // namespace

void bench_step(const distributed::Environment& environment, const Arguments& arguments) {
  const BenchArguments given("step", 5, arguments);

  run::KernelProfile profile;
  Session session(environment, [&](distributed::Communicator& comm) { return given.deck.read(comm); });
  const data::DataSet data = open_data_of(session.deck(), session.control());
  UnsavedRun run(session, session.deck(), data);
  const Measured measured = measure(run, profile, given.runs);
  if (!session.is_first_rank()) return;
  std::cout << fmt::format("{}: {}, {} sequences of {} tokens per micro-step, {} micro-steps, {}, {} per rank\n",
                           session.deck().source, run.settings().model.arch, run.settings().batch.micro_batch,
                           run.settings().step.seq, run.settings().batch.micro_steps, name_of(run.settings().precision),
                           session.runtime().placement());
  print_table(measured);
  given.json.print(json_of(measured));
}

}  // namespace kozero::bench
