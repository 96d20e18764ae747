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
#include <iostream>
#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/core/views.hpp>
#include <kozero/run/unsaved_run.hpp>
#include "src/bench/bench.hpp"

namespace kozero::bench {
namespace {

using run::open_data_of;
using run::Session;
using run::UnsavedRun;

/// The seconds of each kernel, and of no kernel. Kokkos calls back around each kernel, copy, region and wait.
/// The profile sets time stamps on the kernels' stream and adds no wait, so it measures the step as it normally runs.
class KernelProfile {
 public:
  struct Kernel {
    std::string name;
    std::int64_t calls = 0;
    double seconds = 0.0;
  };
  struct Result {
    std::vector<Kernel> kernels;  ///< the longest first
    double in_kernels = 0.0;      ///< seconds
    double span = 0.0;            ///< seconds from the first kernel's begin to the last one's end
    std::int64_t waits = 0;       ///< times the host waited for the device
    double waited = 0.0;          ///< seconds
    std::int64_t allocations = 0;

    [[nodiscard]] double idle_share() const { return 1.0 - in_kernels / span; }
  };

  /// Construct before Kokkos is initialized; otherwise Kokkos waits around each kernel. At most one exists at a time.
  KernelProfile();
  ~KernelProfile();
  KernelProfile(const KernelProfile&) = delete;
  KernelProfile& operator=(const KernelProfile&) = delete;

  void start();
  /// Waits for the device. At least one kernel must have run since start().
  [[nodiscard]] Result stop();

 private:
  struct Interval {
    std::size_t name, begin, end;
  };
  struct Calls;

  void begin(const std::string& name);
  void end();
  std::size_t index_of(const std::string& name);

  DeviceMarks marks_;
  std::vector<std::string> names_;
  std::vector<Interval> intervals_;
  bool recording_ = false;
  int depth_ = 0;
  std::int64_t waits_ = 0;
  int waiting_ = 0;
  double waited_ = 0.0;
  std::int64_t allocations_ = 0;
};

/// In the order of Event::Kind.
constexpr std::array<const char*, 3> kNamesOfKinds = {"phase", "start", "call"};

/// Kokkos' callbacks have no argument for an object.
KernelProfile* current = nullptr;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// The name without text in brackets: "Kokkos::deep_copy" for "Kokkos::deep_copy [a=b]".
std::string short_name(const char* name) {
  const std::string whole = name;
  return whole.substr(0, whole.find(" ["));
}

struct KernelProfile::Calls {
  static void begin_kernel(const char* name, std::uint32_t /*device*/, std::uint64_t* id) {
    *id = 0;
    current->begin(short_name(name));
  }
  static void end_kernel(std::uint64_t /*id*/) { current->end(); }
  static void push_region(const char* name) { current->begin(name); }
  static void end_any() { current->end(); }
  static void begin_copy(Kokkos_Profiling_SpaceHandle /*to*/, const char* /*name*/, const void* /*memory*/,
                         Kokkos_Profiling_SpaceHandle /*from*/, const char* /*source*/, const void* /*source_memory*/,
                         std::uint64_t /*bytes*/) {
    current->begin("copy");
  }
  static void begin_fence(const char* /*name*/, std::uint32_t /*device*/, std::uint64_t* id) {
    *id = 0;
    if (!current->recording_ || current->waiting_++ > 0) return;
    ++current->waits_;
    current->waited_ -= now();
  }
  static void end_fence(std::uint64_t /*id*/) {
    if (current->recording_ && --current->waiting_ == 0) current->waited_ += now();
  }

  static void allocate(Kokkos_Profiling_SpaceHandle /*space*/, const char* /*name*/, const void* /*memory*/,
                       std::uint64_t bytes) {
    if (current->recording_ && bytes > 0) ++current->allocations_;  // teams allocate scratch of 0 bytes
  }

  static void set(bool on) {
    namespace tools = Kokkos::Tools::Experimental;
    tools::set_request_tool_settings_callback(
        on ? [](std::uint32_t, Kokkos_Tools_ToolSettings* settings) { settings->requires_global_fencing = false; }
           : static_cast<Kokkos_Tools_requestToolSettingsFunction>(nullptr));
    tools::set_begin_parallel_for_callback(on ? begin_kernel : nullptr);
    tools::set_end_parallel_for_callback(on ? end_kernel : nullptr);
    tools::set_begin_parallel_reduce_callback(on ? begin_kernel : nullptr);
    tools::set_end_parallel_reduce_callback(on ? end_kernel : nullptr);
    tools::set_push_region_callback(on ? push_region : nullptr);
    tools::set_pop_region_callback(on ? end_any : nullptr);
    tools::set_begin_deep_copy_callback(on ? begin_copy : nullptr);
    tools::set_end_deep_copy_callback(on ? end_any : nullptr);
    tools::set_begin_fence_callback(on ? begin_fence : nullptr);
    tools::set_end_fence_callback(on ? end_fence : nullptr);
    tools::set_allocate_data_callback(on ? allocate : nullptr);
  }
};

KernelProfile::KernelProfile() {
  require(current == nullptr, "KernelProfile: there is one already");
  current = this;
  Calls::set(true);
}

KernelProfile::~KernelProfile() {
  Calls::set(false);
  current = nullptr;
}

void KernelProfile::start() {
  Device().fence("kozero::KernelProfile::start");
  recording_ = true;
}

KernelProfile::Result KernelProfile::stop() {
  recording_ = false;
  Device().fence("kozero::KernelProfile::stop");
  require(!intervals_.empty(), "KernelProfile: no kernel ran");
  Result result;
  for (const auto& name : names_) result.kernels.push_back({name});
  for (const auto& interval : intervals_) {
    Kernel& kernel = result.kernels[interval.name];
    const double seconds = marks_.seconds(interval.begin, interval.end);
    ++kernel.calls;
    kernel.seconds += seconds;
    result.in_kernels += seconds;
  }
  result.span = marks_.seconds(intervals_.front().begin, intervals_.back().end);
  result.waits = waits_;
  result.waited = waited_;
  result.allocations = allocations_;
  std::sort(result.kernels.begin(), result.kernels.end(),
            [](const Kernel& a, const Kernel& b) { return a.seconds > b.seconds; });
  return result;
}

void KernelProfile::begin(const std::string& name) {
  if (!recording_ || depth_++ > 0) return;
  intervals_.push_back({index_of(name), marks_.set(), 0});
}

void KernelProfile::end() {
  if (recording_ && --depth_ == 0) intervals_.back().end = marks_.set();
}

std::size_t KernelProfile::index_of(const std::string& name) {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) names_.push_back(name);
  return static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
}

struct Measured {
  KernelProfile::Result profile;
  std::array<distributed::CollectiveCount, 2> collectives;
  std::int64_t tokens = 0;  ///< per step
  double steps = 0.0;

  [[nodiscard]] double milliseconds(double seconds) const { return 1e3 * seconds / steps; }
};

Measured measure(UnsavedRun& run, KernelProfile& profile, std::int64_t steps) {
  for (std::int64_t step = 1; step <= kFirstSteps; ++step) static_cast<void>(run.step(step));
  run.mesh().counts->reset();
  Measured measured;
  profile.start();
  for (std::int64_t step = kFirstSteps + 1; step <= kFirstSteps + steps; ++step) {
    measured.tokens = run.step(step).tokens;
  }
  measured.profile = profile.stop();
  measured.collectives = run.mesh().counts->rows();
  measured.steps = static_cast<double>(steps);
  return measured;
}

/// Seconds in the collective's calls, without the rank's waits.
std::optional<double> moving(const distributed::CollectiveCount& count) {
  return count.waited ? std::optional(count.seconds - *count.waited) : std::nullopt;
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
      "(first "
      "kernel's begin to last one's end) = {:.1f} %\n",
      measured.milliseconds(profile.span), static_cast<double>(measured.tokens) * measured.steps / profile.span,
      measured.milliseconds(profile.in_kernels), 100.0 * profile.idle_share());
  std::cout << fmt::format(
      "the host waited for kernels {:.1f} times per step, {:.1f} ms, and allocated arrays {:.1f} times\n",
      static_cast<double>(profile.waits) / measured.steps, measured.milliseconds(profile.waited),
      static_cast<double>(profile.allocations) / measured.steps);
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
          {"waits", static_cast<double>(profile.waits) / measured.steps},
          {"allocations", static_cast<double>(profile.allocations) / measured.steps},
          {"events", json_of_events(position().step)}};
}

}  // namespace

void bench_step(const distributed::Environment& environment, const Arguments& arguments) {
  const BenchArguments given("step", 5, arguments);

  KernelProfile profile;
  Session session(environment, [&](distributed::Communicator& comm) { return given.deck.read(comm); });
  const data::DataSet data = open_data_of(session.deck(), session.control());
  UnsavedRun run(session, session.deck(), data);
  const Measured measured = measure(run, profile, given.runs);
  if (!session.is_first_rank()) return;
  std::cout << fmt::format("{}: {}, {} sequences of {} tokens per micro-step, {} micro-steps, {}, {} per rank\n",
                           session.deck().source, run.settings().model.arch, run.settings().batch.micro_batch,
                           run.settings().model.seq, run.settings().batch.micro_steps,
                           name_of(run.settings().precision), session.runtime().placement());
  print_table(measured);
  given.json.print(json_of(measured));
}

}  // namespace kozero::bench
