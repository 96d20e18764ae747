// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <kozero/core/error.hpp>
#include <kozero/dist/control_communicator.hpp>
#include <kozero/io/readable.hpp>

#include "saving.hpp"

namespace kozero::commands {
namespace {

std::string failure_text(const train::SaveReport& report) {
  return fmt::format("the checkpoint of step {}: {}", report.step, report.problem->what());
}

}  // namespace

bool can_save_beside(const dist::Environment& environment) {
  return environment.size() == 1 || environment.thread_multiple();
}

Saving::Saving(Session& session, train::Assembly& assembly, io::Log& log, std::string folder)
    : keys_(session.deck().checkpoint),
      control_(session.control()),
      log_(log),
      folder_(std::move(folder)),
      saver_(assembly.parts(), assembly.staging(),
             dist::make_control_communicator(session.environment().world(), session.deck().comm.timeout_s)) {}

bool Saving::due(std::int64_t step, bool last) const { return keys_.every > 0 && (last || step % keys_.every == 0); }

void Saving::save(const io::CheckpointRecord& record, std::map<std::string, std::string> texts) {
  const auto start = Clock::now();
  const auto before = saver_.wait();
  if (before) settle(*before);
  waited_s_ = std::chrono::duration<double>(Clock::now() - start).count();
  interval_s_ = std::chrono::duration<double>(start - last_begin_).count();
  last_begin_ = start;
  saver_.begin({folder_, record, std::move(texts), keys_.keep});
  stall_s_ += std::chrono::duration<double>(Clock::now() - start).count();
  if (!saver_.asynchronous()) finish();
}

void Saving::look() {
  if (const auto report = saver_.ended(control_)) settle(*report);
}

void Saving::finish() {
  if (const auto report = saver_.wait()) settle(*report);
}

void Saving::settle(const train::SaveReport& report) {
  if (!report.problem) {
    saved_step_ = report.step;
    return tell(report);
  }
  const Error& problem = *report.problem;
  const auto seen = problem.seen_by_all_ranks() ? Error::Seen::by_all_ranks : Error::Seen::by_this_rank;
  if (problem.failure() != Failure::write || keys_.on_error == "stop") {
    throw Error(problem.failure(), failure_text(report) + "; older checkpoints are as they were", seen);
  }
  log_.say("warning      " + failure_text(report) + "; training goes on (checkpoint.on_error = \"continue\")");
}

void Saving::tell(const train::SaveReport& report) const {
  const double stall_s = waited_s_ + report.stall_s;
  log_.say(fmt::format(
      "checkpoint   {}: {} in {:.2f} s ({:.2f} GB/s), training stood still {:.3f} s, {:.1f} % of the {:.2f} s "
      "since the last",
      report.folder, io::readable_bytes(report.bytes), report.seconds,
      static_cast<double>(report.bytes) / 1e9 / report.seconds, stall_s,
      interval_s_ > 0.0 ? 100.0 * stall_s / (interval_s_ + stall_s) : 100.0, interval_s_));
}

}  // namespace kozero::commands
