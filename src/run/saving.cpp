// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// saving.cpp: when a save is due, the waits for saves, and the outcome of each: a log line, a warning or an error.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <thread>

#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "src/run/saving.hpp"

namespace kozero::run {
namespace {

std::string failure_text(const train::SaveReport& report) {
  return fmt::format("the checkpoint of step {}: {}", report.step, report.problem->what());
}

/// If only one thread may call MPI, no heartbeat distinguishes a slow disk from a lost rank, so the longer timeout
/// holds for both. A synchronous save has a time limit of its own; an asynchronous one has not, since the training
/// waits for it.
std::unique_ptr<distributed::Communicator> saver_communicator(Session& session, bool asynchronous) {
  const io::Deck& deck = session.deck();
  const double timeout_s = can_save_beside(session.environment())
                               ? deck.comm.timeout_s
                               : std::max(deck.comm.timeout_s, deck.checkpoint.io_timeout_s);
  return distributed::make_control_communicator(
      session.environment().world(), timeout_s,
      {.role = distributed::Role::saver, .io_timeout_s = asynchronous ? 0.0 : deck.checkpoint.io_timeout_s});
}

}  // namespace

bool can_save_beside(const distributed::Environment& environment) {
  return environment.size() == 1 || environment.thread_multiple();
}

Saving::Saving(Session& session, train::Engine& engine, io::Log& log, std::shared_ptr<const io::HeldFolder> folder)
    : keys_(session.deck().checkpoint),
      control_(session.control()),
      log_(log),
      folder_(std::move(folder)),
      saver_(engine, engine.staging(), saver_communicator(session, engine.staging() != nullptr)) {}

void Saving::read_clock() {
  if (keys_.every_minutes <= 0.0) return;
  const std::chrono::duration<double> passed = Clock::now() - last_begin_;
  time_has_passed_ = distributed::broadcast_value(control_, passed.count() >= 60.0 * keys_.every_minutes);
}

bool Saving::due(std::int64_t step, bool last) const {
  return keys_.every > 0 && (last || time_has_passed_ || step % keys_.every == 0);
}

void Saving::save(const io::CheckpointRecord& record, std::map<std::string, std::string> texts, bool prune) {
  const EventScope event({.name = "saving"});
  const auto start = Clock::now();
  const bool ready = await_last(hangs_ ? 0.0 : keys_.io_timeout_s);
  waited_s_ = std::chrono::duration<double>(Clock::now() - start).count();
  interval_s_ = std::chrono::duration<double>(start - last_begin_).count();
  last_begin_ = start;
  time_has_passed_ = false;
  left_out_.reset();
  train::SaveOrder order{folder_, record, std::move(texts), prune ? keys_.keep : 0, keys_.keep_best};
  if (!ready) {
    left_out_ = std::move(order);
    return;
  }
  distributed::agreed(control_, [&] { folder_->require(); });
  saver_.begin(order);
  stall_s_ += std::chrono::duration<double>(Clock::now() - start).count();
  // The report exists already; a rank that hangs would not reach an agreement on it.
  if (!saver_.asynchronous()) conclude(*saver_.wait());
}

void Saving::look() {
  if (const auto report = saver_.ended(control_)) conclude(*report);
}

void Saving::finish() {
  // A run whose last save hangs cannot end in good order, since the save's thread does not end.
  if (!await_last(keys_.io_timeout_s)) refuse_hanging(true);
  if (!left_out_) return;
  saver_.begin(*std::exchange(left_out_, std::nullopt));
  finish();
}

bool Saving::await_last(double longest_s) {
  if (const auto report = saver_.wait(control_, longest_s)) conclude(*report);
  const bool begins_to_hang = !hangs_ && saver_.under_way();
  hangs_ = saver_.under_way();
  if (begins_to_hang) refuse_hanging(keys_.on_error == "stop");
  return !hangs_;
}

void Saving::refuse_hanging(bool stops) const {
  const std::string whose = saver_.slow_ranks().empty() ? "" : ", on " + saver_.slow_ranks();
  const std::string text = fmt::format(
      "the checkpoint of step {} is not written after {} s of waiting (checkpoint.io_timeout_s){}: the disk "
      "of {} hangs or is too slow",
      saver_.step(), keys_.io_timeout_s, whose, folder_->folder());
  if (!stops) {
    log_.say("warning      " + text +
             "; none is saved until it is, and training goes on (checkpoint.on_error = "
             "\"continue\")");
    return;
  }
  // A thread that hangs in a system call cannot be ended, so nothing is unwound: rank 0 reports and ends the job. The
  // others end by themselves if rank 0's abort does not reach them.
  constexpr auto kStatus = static_cast<int>(Failure::write);
  constexpr std::chrono::seconds kAbortReachesAll{10};
  if (control_.rank() == 0) {
    report_failure(kStatus, failure_line(0, kStatus, text + "; older checkpoints are as they were"));
  } else {
    std::this_thread::sleep_for(kAbortReachesAll);
  }
  distributed::Environment::abort(kStatus);
}

void Saving::conclude(const train::SaveReport& report) {
  if (!report.problem) {
    saved_step_ = report.step;
    return tell(report);
  }
  const Error& problem = *report.problem;
  const auto seen = problem.seen_by_all_ranks() ? Error::Seen::by_all_ranks : Error::Seen::by_this_rank;
  // If only this rank has seen the failure, another rank hangs, and training cannot continue.
  if (problem.failure() != Failure::write || keys_.on_error == "stop" || !problem.seen_by_all_ranks()) {
    const bool lost = problem.failure() == Failure::communication;  // its text ends in one line per rank
    throw Error(problem.failure(), failure_text(report) + (lost ? "" : "; older checkpoints are as they were"), seen);
  }
  log_.say("warning      " + failure_text(report) + "; training goes on (checkpoint.on_error = \"continue\")");
}

void Saving::tell(const train::SaveReport& report) const {
  const double stall_s = waited_s_ + report.stall_s;
  log_.say(fmt::format(
      "checkpoint   {}: {} in {:.2f} s ({:.2f} GB/s); stalled training {:.3f} s, {:.2f} s since the last checkpoint{}",
      report.folder, io::readable_bytes(report.bytes), report.seconds,
      static_cast<double>(report.bytes) / 1e9 / report.seconds, stall_s, interval_s_ + stall_s,
      report.is_best ? "; lowest validation loss so far" : ""));
}

}  // namespace kozero::run
