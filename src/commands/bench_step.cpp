// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench_step.cpp: where the time of a deck's training steps goes, while they run as they always do: each kernel's
// share, and how long none runs (kernel_profile.hpp). What kernels leave idle is communication that nothing hides,
// reading of data, and on a GPU a host that is late: it waits for the GPU, once a step, as long as
// it was ahead.
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench.hpp"
#include "bench_arguments.hpp"
#include "kernel_profile.hpp"
#include "unsaved_run.hpp"

namespace kozero::commands {
namespace {

constexpr std::int64_t kFirstSteps = 2;  // in which what is made once is made

struct Measured {
  KernelProfile::Result profile;
  std::array<dist::CollectiveCount, 2> collectives;
  std::int64_t tokens = 0;  ///< of a step
  double steps = 0.0;

  [[nodiscard]] double milliseconds(double seconds) const { return 1e3 * seconds / steps; }
};

Measured measure(UnsavedRun& run, KernelProfile& profile, std::int64_t steps) {
  for (std::int64_t step = 1; step <= kFirstSteps; ++step) static_cast<void>(run.step(step));
  run.comm().reset();
  Measured measured;
  profile.start();
  for (std::int64_t step = kFirstSteps + 1; step <= kFirstSteps + steps; ++step) {
    measured.tokens = run.step(step).tokens;
  }
  measured.profile = profile.stop();
  measured.collectives = run.comm().counts();
  measured.steps = static_cast<double>(steps);
  return measured;
}

void print_table(const Measured& measured) {
  const auto& profile = measured.profile;
  std::cout << fmt::format("{:<38}{:>12}{:>12}{:>10}\n", "kernel", "calls", "ms a step", "of step");
  for (const auto& kernel : profile.kernels) {
    std::cout << fmt::format("{:<38}{:>12.1f}{:>12.3f}{:>8.1f} %\n", kernel.name,
                             static_cast<double>(kernel.calls) / measured.steps, measured.milliseconds(kernel.seconds),
                             100.0 * kernel.seconds / profile.span);
  }
  for (const auto& one : measured.collectives) {
    if (one.calls == 0) continue;
    std::cout << fmt::format("in calls of {:<26}{:>12.1f}{:>12.3f}{:>8.1f} %\n", one.collective,
                             static_cast<double>(one.calls) / measured.steps, measured.milliseconds(one.seconds),
                             100.0 * one.seconds / profile.span);
  }
  std::cout << fmt::format(
      "{:.3f} ms a step ({:.0f} tokens/s over all ranks), {:.3f} ms of it in kernels; idle share = 1 - in kernels / "
      "(first "
      "kernel's begin to last one's end) = {:.1f} %\n",
      measured.milliseconds(profile.span), static_cast<double>(measured.tokens) * measured.steps / profile.span,
      measured.milliseconds(profile.in_kernels), 100.0 * profile.idle_share());
  std::cout << fmt::format(
      "the host waited for kernels {:.1f} times a step, {:.1f} ms, and allocated arrays {:.1f} times\n",
      static_cast<double>(profile.waits) / measured.steps, measured.milliseconds(profile.waited),
      static_cast<double>(profile.allocations) / measured.steps);
}

nlohmann::ordered_json json_of(const Measured& measured) {
  const auto& profile = measured.profile;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& kernel : profile.kernels) {
    rows.push_back({{"kernel", kernel.name},
                    {"calls", static_cast<double>(kernel.calls) / measured.steps},
                    {"seconds", kernel.seconds / measured.steps}});
  }
  return {{"kernels", rows},
          {"step_s", profile.span / measured.steps},
          {"in_kernels_s", profile.in_kernels / measured.steps},
          {"idle_share", profile.idle_share()},
          {"waits", static_cast<double>(profile.waits) / measured.steps},
          {"allocations", static_cast<double>(profile.allocations) / measured.steps}};
}

}  // namespace

void bench_step(const dist::Environment& environment, const Arguments& arguments) {
  const BenchArguments given("step", 5, arguments);

  KernelProfile profile;
  Session session(environment, [&](dist::Communicator& comm) { return given.deck.read(comm); });
  const train::DataSet data = open_data_of(session.deck(), session.control());
  UnsavedRun run(session, session.deck(), data);
  const Measured measured = measure(run, profile, given.runs);
  if (!session.is_first_rank()) return;
  std::cout << fmt::format("{}: {}, {} sequences of {} tokens a micro-step, {} micro-steps, {}, {} a rank\n",
                           session.deck().source, run.settings().model.arch, run.settings().batch.micro_batch,
                           run.settings().model.seq, run.settings().batch.micro_steps,
                           name_of(run.settings().precision), session.runtime().placement());
  print_table(measured);
  given.json.print(json_of(measured));
}

}  // namespace kozero::commands
