// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_control.cpp: locks and status of a run's folder, requests to stop, and failures recorded by several threads.
#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/run/provenance.hpp>
#include <kozero/run/stop_signals.hpp>
#include <kozero/train/run_files.hpp>
#include "io/run/run_folder.hpp"
#include "src/run/run_control.hpp"

namespace kozero::run {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kFolderInterval = std::chrono::seconds(1);
constexpr auto kStatusInterval = std::chrono::seconds(5);

/// run.dir if the run may continue in it, else "". checkpoint.resume may name the run, a checkpoint or file in it, or a
/// file of that checkpoint.
std::string folder_to_continue(const io::Deck& deck) {
  const std::string run_dir = io::without_trailing_slash(deck.run.dir);
  const std::string& resume = deck.checkpoint.resume;
  if (resume == "none") return "";
  if (resume == "auto") return run_dir;
  fs::path path = fs::absolute((fs::path(resume) / "").parent_path());
  for (int level = 0; level < 3; ++level, path = path.parent_path()) {
    if (train::same_folder(path.string(), run_dir)) return run_dir;
  }
  return "";
}

/// The largest number of a stop signal that any rank noted; 0 if none. Collective.
int largest_signal(distributed::Communicator& comm) {
  const auto signals = distributed::from_all_ranks(comm, stop_signal());
  return *std::max_element(signals.begin(), signals.end());
}

/// "[rank 1] error: what" without the beginning: "what".
std::string text_of(const std::string& line) {
  for (const std::string_view before : {"] error: ", "] "}) {
    const auto found = line.find(before);
    if (found != std::string::npos) return line.substr(found + before.size());
  }
  return line;
}

}  // namespace

/// Data that a thread may need to report a failure after the run object is destroyed.
struct RunControl::Shared {
  std::atomic<std::int64_t> step{0};
  std::atomic<bool> lone{true};  ///< only this rank has seen the reported error
};

RunControl::RunControl(Session& session, io::Log& log, StartedAs started)
    : session_(session),
      deck_(session.deck()),
      control_(session.control()),
      log_(log),
      started_(std::move(started)),
      shared_(std::make_shared<Shared>()) {
  keep_stop_signals(deck_.run.stop_signals);
  const bool alone = control_.size() == 1;
  set_stop_actions({.rank = control_.rank(),
                    .command = command(""),
                    .end = alone ? nullptr : static_cast<void (*)(int)>(distributed::Environment::abort),
                    .unanswered = {}});
  end_at_stop_signal("before the first step");
  processes_.assign(session.placements().begin(), session.placements().end());
  std::string folder;
  distributed::agreed(control_, [&] {
    folder = folder_to_continue(deck_);
    if (started_.steal_lock && folder.empty()) {
      throw Error(Failure::deck, "--steal-lock: no folder is continued; it goes with checkpoint.resume");
    }
    if (control_.rank() != 0 || folder.empty()) return;
    lock_ =
        std::make_unique<io::RunLock>(folder, started_.steal_lock ? io::RunLock::Steal::yes : io::RunLock::Steal::no);
    io::require_regular_files(folder);
  });
  if (!folder.empty() && io::holds_run(folder)) record_failed_start(folder);
}

RunControl::~RunControl() {
  set_stop_actions({.rank = control_.rank(), .command = "", .end = nullptr, .unanswered = {}});
}

Facts RunControl::provenance() const {
  return run_facts(command_line("train", started_.arguments, control_.size()), processes_);
}

std::string RunControl::make_folder(const std::string& continued) {
  const std::string locked = lock_ ? lock_->folder() : "";
  if (!continued.empty()) notes_on_run_before_ = io::notes_on_run_before(continued);
  const std::string folder = continued.empty() ? io::create_run_folder(deck_.run.dir, locked) : continued;
  if (!lock_ || lock_->folder() != folder) lock_ = std::make_unique<io::RunLock>(folder, io::RunLock::Steal::no);
  record_ = std::make_shared<io::RunRecord>(folder, processes_);
  record_failures();
  return folder;
}

void RunControl::enter(const std::string& folder, std::int64_t step) {
  shared_->step = step;
  record_ = std::make_shared<io::RunRecord>(folder, processes_);
  record_failures();
  {
    // A rank that a signal ends records the fact, and must not do so before rank 0 writes the status "running". So rank
    // 0 writes while all ranks hold their signals.
    const auto held = hold_stop_signals();
    distributed::agreed(control_, [] {});
    distributed::agreed(control_, [&] {
      if (control_.rank() != 0) return;
      if (!lock_->note().empty()) log_.say("warning      " + lock_->note());
      for (const auto& line : notes_on_run_before_) log_.say("note         " + line);
      io::clear_failure_notes(folder);
      record_->begin(step);
    });
  }
  watch_peer();
}

void RunControl::watch_peer() {
  if (control_.size() == 1) return;
  board_ = std::make_unique<LifeBoard>(control_);
  const int rank = control_.rank();
  const int peer = board_->next_rank();
  if (peer == rank) return;
  const auto pid = record_->ranks()[static_cast<std::size_t>(peer)].pid;
  peer_ = std::make_unique<PeerWatch>(*board_, peer, [record = record_, shared = shared_, rank, peer, pid] {
    const std::string why = "its process " + std::to_string(pid) + " ended without a word: killed, or crashed";
    if (!record->write_failure_note(peer, shared->step, why)) return;  // it left a note, or the run is over
    shared->lone = false;                                              // the line on the peer is the whole report
    constexpr int kLost = static_cast<int>(Failure::communication);
    report_failure(kLost, failure_line(rank, kLost, record->name_of(peer) + ": " + why));
    distributed::Environment::abort(kLost);
  });
}

void RunControl::end_outputs() {
  peer_.reset();
  require_outputs();
  ignore_stop_signals();
}

void RunControl::record_failed_start(const std::string& folder) {
  const auto record = std::make_shared<const io::RunRecord>(folder, processes_);
  const bool is_finished = io::status_of_run(folder).state == "finished";
  set_failure_reporter([record, is_finished](int status, const std::string& line) {
    record->log(line);
    if (is_finished) return;  // a rejected resume does not change the run
    record->end({status == kPreempted ? "preempted" : "failed", text_of(line), 0, status});
  });
}

void RunControl::record_failures() {
  const auto rank = control_.rank();
  set_failure_reporter([record = record_, shared = shared_, rank](int status, const std::string& line) {
    const std::string why = text_of(line);
    record->log(line);
    if (status != kPreempted && shared->lone) record->write_failure_note(rank, shared->step, why);
    record->end({status == kPreempted ? "preempted" : "failed", why, shared->step, status});
    if (status == kPreempted) io::clear_failure_notes(record->folder());
  });
  const bool goes_by_path = deck_.checkpoint.resume != "none" && deck_.checkpoint.resume != "auto";
  set_stop_actions({.rank = rank,
                    .command = command(goes_by_path ? "" : "auto"),
                    .end = control_.size() == 1 ? nullptr : static_cast<void (*)(int)>(distributed::Environment::abort),
                    .unanswered = [record = record_, shared = shared_, rank](int signal) {
                      record->write_failure_note(
                          rank, shared->step,
                          signal_name(signal) + " came, and the ranks agreed on no step to stop after");
                    }});
}

void RunControl::begin_steps() { note_stop_signals(); }

void RunControl::end_steps() {
  if (stopped_by_signal()) return;
  end_at_stop_signal("after the last step, whose weights are complete in " + record_->folder());
}

std::function<int()> RunControl::request() {
  return [this] { return own_request(); };
}

int RunControl::own_request() {
  int reason = stop_signal();
  if (control_.rank() == 0) {
    look_at_folder();
    if (time_is_over()) reason = std::max(reason, stop_reason::kTimeOver);
    if (metrics_lost_) reason = std::max(reason, stop_reason::kMetricsLost);
    if (!folder_lost_.empty()) reason = stop_reason::kFolderLost;
  }
  return reason;
}

void RunControl::look_at_folder() {
  const auto now = Clock::now();
  if (!folder_lost_.empty() || now - looked_ < kFolderInterval) return;
  looked_ = now;
  folder_lost_ = lock_->lost();
}

bool RunControl::time_is_over() const {
  const std::chrono::duration<double> passed = Clock::now() - started_.begin;
  return deck_.run.max_minutes > 0.0 && passed.count() > 60.0 * deck_.run.max_minutes;
}

void RunControl::count_step(std::int64_t step, int reason) {
  shared_->step = step;
  reason_ = std::max(reason_, reason);
  if (control_.rank() == 0 && Clock::now() - recorded_ >= kStatusInterval) {
    record_->update(step);
    recorded_ = Clock::now();
  }
  if (stopped_by_signal()) answer_stop_signal();
}

void RunControl::count_interruption(const std::string& done, int reason) {
  discarded_ = done;
  reason_ = std::max(reason_, reason);
  if (stopped_by_signal()) answer_stop_signal();
}

bool RunControl::signal_on_any_rank(distributed::Communicator& comm) {
  const int largest = largest_signal(comm);
  reason_ = std::max(reason_, largest);
  if (largest != 0) answer_stop_signal();
  return largest != 0;
}

void RunControl::write(io::MetricsFile& metrics, const io::StepMetrics& row) {
  try {
    metrics.write(row);
    if (rows_lost_ > 0)
      log_.say(fmt::format("note         {} is written again; it lacks {} steps", io::kMetricsFile, rows_lost_));
    rows_lost_ = 0;
  } catch (const Error& problem) {
    if (problem.failure() != Failure::write) throw;
    if (deck_.checkpoint.on_error == "stop") {
      if (!metrics_lost_) metrics_lost_ = problem;
    } else if (rows_lost_ == 0) {
      log_.say(std::string("warning      ") + problem.what() +
               "; training goes on (checkpoint.on_error = \"continue\")");
    }
    ++rows_lost_;
  }
}

bool RunControl::lost_metrics() {
  return distributed::from_first_rank(control_, [&] { return std::string(metrics_lost_ ? "lost" : ""); }) == "lost";
}

void RunControl::require_outputs(const std::string& saved) {
  distributed::agreed(control_, [&] {
    if (control_.rank() != 0) return;
    looked_ = {};
    look_at_folder();
    if (!folder_lost_.empty()) throw Error(Failure::write, folder_lost_ + "; the run ends without saving");
    if (metrics_lost_)
      throw Error(metrics_lost_->failure(), metrics_lost_->what() + (saved.empty() ? "" : "; " + saved));
  });
}

std::string RunControl::command(const std::string& resume) const {
  std::vector<std::string> arguments = started_.arguments;
  std::erase(arguments, "--steal-lock");
  drop_repeated_keys(arguments);
  if (!resume.empty()) {
    std::erase_if(arguments, [](const std::string& each) {
      return each.starts_with("checkpoint.resume=") || each.starts_with("run.dir=");
    });
    arguments.push_back(text_override("checkpoint.resume", resume));
    arguments.push_back(text_override("run.dir", record_->folder()));
  }
  return command_line("train", arguments, control_.size());
}

Error RunControl::stopped(std::int64_t steps, const std::string& saved, const std::string& resume) {
  const std::string why = stopped_by_signal() ? signal_name(reason_) + " came"
                                              : fmt::format("run.max_minutes = {} have passed", deck_.run.max_minutes);
  const std::string discarded = interrupted() ? "; " + discarded_ + " are discarded" : "";
  return {Failure::preempted,
          fmt::format("stopped after step {} of {}: {}{}; {}; to go on: {}", shared_->step.load(), steps, why,
                      discarded, saved, command(resume)),
          Error::Seen::by_all_ranks};
}

void RunControl::finish() {
  if (control_.rank() != 0) return;
  if (!record_->end({"finished", "", shared_->step, 0})) {
    log_.say("warning      " + record_->folder() + "/" + io::kStatusFile + " could not be written");
  }
  io::clear_failure_notes(record_->folder());
}

void RunControl::complete() {
  set_failure_reporter({});
  if (control_.rank() == 0 && std::cout.flush().good()) tell_exit_status(0);
}

void RunControl::fail(const Error& error) {
  const bool lone = !error.seen_by_all_ranks();
  const int status = error.exit_status();
  if (!lone) peer_.reset();
  if (!lone && control_.rank() != 0) return;
  shared_->lone = lone && control_.size() > 1;
  log_.status("");
  report_failure(status, failure_line(control_.rank(), status, error.what()));
  if (lone && control_.size() > 1) distributed::Environment::abort(status);
}

}  // namespace kozero::run
