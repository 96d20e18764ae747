// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sweep.cpp: the command `sweep`: trains every combination of a matrix's values, each once and in a folder of its own.
//   SWEEP/sweep.json   SWEEP/cases/ID/case.json, written when a case ends   .../run/   .../output.txt   .../deck.toml
// A case without case.json is run again from nothing; one with it never is, unless it failed and --retry is given.
// Cases of the folder that are not in the matrix stay as they are. All cases are of the deck that was read first, and
// of the data, other files and program whose hashes are in their identities: these are compared before and after a
// case.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/device_choice.hpp>
#include <kozero/run/provenance.hpp>
#include <kozero/run/stop_signals.hpp>
#include "io/deck/matrix_file.hpp"
#include "io/deck/named_deck.hpp"
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"
#include "io/run/run_output.hpp"
#include "io/run/run_status.hpp"
#include "src/commands/plan_report.hpp"
#include "src/commands/sweep_cases.hpp"
#include "src/commands/sweep_files.hpp"
#include "src/commands/sweep_process.hpp"

namespace kozero::commands {

using program::JsonOutput;
using program::OptionParser;

namespace {

using Json = nlohmann::ordered_json;

constexpr int kInterrupted = 128 + SIGINT;
constexpr double kStart = 0.5;  // seconds of a case beside its steps, for the time left
constexpr const char* kForRanks = "{ranks}";
constexpr const char* kRetry = "--retry";

/// The options of `sweep`.
struct Order {
  std::string matrix;
  std::vector<std::string> overrides;
  std::string only;         ///< a pattern of names; "": all
  std::int64_t number = 0;  ///< of a single case; 0: all
  std::string launcher;     ///< "": the default
  bool dry_run = false;
  bool retry = false;
  bool array = false;
  JsonOutput json;

  explicit Order(const Arguments& arguments) {
    OptionParser parser("sweep");
    parser.add("matrix", matrix).required();
    parser.add("overrides", overrides, "changes a key in all cases, or sweep.dir and the like");
    parser.add_flag("--dry-run", dry_run, "print the cases with planned memory and time, and run none");
    auto pattern = parser.add("--only", only, "run the cases whose name has this part, a pattern of the shell");
    pattern.type_name("PATTERN");
    parser.add("--case", number, "run case K of the list that --dry-run prints")
        .type_name("K")
        .default_text("all")
        .positive()
        .excludes(pattern);
    parser.add_flag(kRetry, retry, "run failed cases again");
    parser.add("--launcher", launcher, "starts the ranks of a case: 'srun -n {ranks}'")
        .type_name("WORDS")
        .default_text("this build's mpiexec; under Slurm srun")
        .check([](const std::string& text) {
          return text.find(kForRanks) != std::string::npos ? "" : "it has no {ranks}; accepted: 'mpiexec -n {ranks}'";
        });
    parser.add_flag("--array", array, "print a Slurm script that runs each case as a task of a job array");
    json.add_to(parser);
    parser.parse(arguments);
  }

  [[nodiscard]] bool chooses(const SweepCase& one, std::size_t index) const {
    if (number > 0) return static_cast<std::int64_t>(index) + 1 == number;
    return only.empty() || ::fnmatch(("*" + only + "*").c_str(), one.name.c_str(), FNM_NOESCAPE) == 0;
  }
};

/// The words before the program: none for one rank, unless the user gives a launcher or Slurm is there.
std::vector<std::string> launcher_of(const Order& order, int ranks) {
  const bool in_slurm = std::getenv("SLURM_JOB_ID") != nullptr;
  if (ranks == 1 && order.launcher.empty() && !in_slurm) return {};
  std::string text = order.launcher;
  if (text.empty()) text = in_slurm ? run::slurm_launcher() : run::launcher();
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    const auto found = word.find(kForRanks);
    if (found != std::string::npos) word.replace(found, std::string(kForRanks).size(), std::to_string(ranks));
    words.push_back(word);
  }
  return words;
}

std::vector<std::string> words_of(const SweepCase& one, const io::Matrix& matrix, const Order& order) {
  std::vector<std::string> words = launcher_of(order, one.ranks());
  words.insert(words.end(), {host_program(), "train", matrix.deck});
  words.insert(words.end(), one.keys.begin(), one.keys.end());
  return words;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + run::quoted_for_shell(word);
  return line;
}

/// "1 case", "4 cases"
std::string counted(std::size_t cases) { return fmt::format("{} case{}", cases, cases == 1 ? "" : "s"); }

/// A sweep and what is to be done of it.
class Sweep {
 public:
  Sweep(const Order& order, const distributed::Environment& environment, std::string command)
      : order_(order),
        environment_(environment),
        command_(std::move(command)),
        matrix_(io::read_matrix(order.matrix, order.overrides)),
        cases_(cases_of(matrix_, hashes_)),
        before_(read_sweep(matrix_, cases_)),
        // A list is the output of the command: it waits for its reader. What a training sweep says must not stop it.
        log_(order.dry_run || order.array ? io::Log(std::cout, false) : io::Log::on_standard_output()) {
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      records_.push_back(record_of(cases_[i]));
      if (order_.chooses(cases_[i], i)) chosen_.push_back(i);
    }
    if (chosen_.empty()) refuse_empty_choice();
  }

  void print_plan();
  void print_array() const;
  /// Runs what is chosen and has not ended. Throws Error if a signal stopped it, or if cases failed.
  void run();

 private:
  [[noreturn]] void refuse_empty_choice() const;
  [[nodiscard]] bool is_due(std::size_t i) const { return !records_[i] || (order_.retry && !records_[i]->is_done); }
  [[nodiscard]] std::vector<std::size_t> due() const;
  [[nodiscard]] std::string state_of(std::size_t i) const;
  [[nodiscard]] std::string plan_line(std::size_t i, std::size_t width) const;
  void say_others();
  void prepare_folder();
  void run_case(std::size_t i, std::size_t left, StopSignals& signals);
  /// Adds to the rate by which plans are corrected.
  void count_time(const SweepCase& one, double seconds);
  void end_case(std::size_t i, const ProcessEnd& end, const std::string& command, const std::string& start);
  /// Seconds that the due cases need, by the plan and what cases took so far; "" if unknown.
  [[nodiscard]] std::string time_left(double of_this_case) const;
  [[noreturn]] void stop(const StopSignals* signals) const;
  void summarize(std::size_t run, double seconds);

  const Order& order_;
  const distributed::Environment& environment_;
  std::string command_;
  io::Matrix matrix_;
  ContentHashes hashes_;
  std::vector<SweepCase> cases_;
  SweepFile before_;
  std::vector<std::optional<CaseRecord>> records_;
  std::vector<std::size_t> chosen_;
  io::Log log_;
  double ran_s_ = 0.0;      // of cases that ended
  double planned_s_ = 0.0;  // their plans
};

void Sweep::refuse_empty_choice() const {
  throw Error(Failure::deck, order_.number > 0
                                 ? fmt::format("--case {}: the sweep has {}", order_.number, counted(cases_.size()))
                                 : fmt::format("--only {}: no case has such a name; a case is called \"{}\"",
                                               order_.only, cases_.front().name));
}

std::vector<std::size_t> Sweep::due() const {
  std::vector<std::size_t> list;
  std::ranges::copy_if(chosen_, std::back_inserter(list), [&](std::size_t i) { return is_due(i); });
  return list;
}

std::string Sweep::state_of(std::size_t i) const {
  if (!records_[i]) return "to run";
  return records_[i]->is_done ? "done" : "failed: " + records_[i]->why;
}

std::string Sweep::plan_line(std::size_t i, std::size_t width) const {
  const SweepCase& one = cases_[i];
  const auto planned = one.planned_s();
  const std::int64_t free = io::available_memory();
  const bool fits = free <= 0 || !one.step_s || one.planned_bytes * one.ranks() <= free;
  return fmt::format("{:>4}  {:<{}}  {:>5}  {:>12}  {:>10}  {:>12}  {}{}", i + 1, one.title(matrix_), width,
                     one.ranks(), io::readable_bytes(one.planned_bytes), one.step_s ? duration_text(*one.step_s) : "?",
                     planned ? duration_text(*planned) : "?", state_of(i), fits ? "" : " (more than is free here)");
}

void Sweep::say_others() {
  const std::string text = text_of_others(before_);
  if (!text.empty()) log_.say(matrix_.dir + ": " + text);
}

void Sweep::print_plan() {
  plan_cases(cases_, environment_, Only::all);
  std::size_t width = 4;
  for (const std::size_t i : chosen_) width = std::max(width, cases_[i].title(matrix_).size());
  log_.say(fmt::format("{:>4}  {:<{}}  {:>5}  {:>12}  {:>10}  {:>12}  {}", "case", "name", width, "ranks", "per rank",
                       "per step", "in all", "state"));
  std::int64_t most = 0;
  double seconds = 0.0;
  std::size_t unknown = 0;
  Json list = Json::array();
  for (const std::size_t i : chosen_) {
    const SweepCase& one = cases_[i];
    const auto planned = one.planned_s();
    log_.say(plan_line(i, width));
    list.push_back({{"case", i + 1},
                    {"name", one.name},
                    {"identity", one.identity},
                    {"ranks", one.ranks()},
                    {"bytes_per_rank", one.planned_bytes},
                    {"seconds", planned ? Json(*planned) : Json()},
                    {"state", state_of(i)}});
    most = std::max(most, one.planned_bytes * one.ranks());
    if (!is_due(i)) continue;
    seconds += planned.value_or(0.0);
    if (!planned) ++unknown;
  }
  say_others();
  log_.say(
      fmt::format("{}: {}, {} to run: {}{} of steps and evaluations, and at most {} of arrays in a case; starts, data "
                  "and files come on top",
                  matrix_.dir, counted(chosen_.size()), due().size(), duration_text(seconds),
                  unknown > 0 ? fmt::format(" without {} of unknown length", unknown) : "", io::readable_bytes(most)));
  order_.json.print({{"sweep", matrix_.dir},
                     {"cases", list},
                     {"others", before_.others.size()},
                     {"to_run", due().size()},
                     {"seconds", seconds}});
}

void Sweep::print_array() const {
  CpuSet numbers;
  int ranks = 1;
  for (const std::size_t i : due()) {
    numbers.push_back(static_cast<int>(i) + 1);
    ranks = std::max(ranks, cases_[i].ranks());
  }
  if (numbers.empty()) throw Error(Failure::deck, "--array: all cases have ended; nothing is to be run");
  std::vector<std::string> words = {host_program(), "sweep", order_.matrix};
  words.insert(words.end(), order_.overrides.begin(), order_.overrides.end());
  if (order_.retry) words.emplace_back(kRetry);
  words.insert(words.end(), {"--launcher", order_.launcher.empty() ? run::slurm_launcher() : order_.launcher});
  std::cout << fmt::format(
      "#!/bin/bash\n"
      "# {} of {} of {}; a task that is repeated runs nothing twice.\n"
      "#SBATCH --job-name={} --output={}-%A_%a.log\n"
      "#SBATCH --array={}\n"
      "#SBATCH --ntasks={}\n"
      "exec {} --case \"$SLURM_ARRAY_TASK_ID\"\n",
      numbers.size(), counted(cases_.size()), matrix_.path, run::quoted_for_shell(matrix_.name),
      run::quoted_for_shell(matrix_.name), as_ranges(numbers), ranks, shell_line(words));
}

/// Writes sweep.json, unless it has all cases already.
void Sweep::prepare_folder() {
  if (before_.is_current) return;
  plan_cases(cases_, environment_, Only::unplanned);
  write_sweep(matrix_, cases_, command_, before_);
}

std::string Sweep::time_left(double of_this_case) const {
  double planned = 0.0;
  for (const std::size_t i : due()) {
    const auto seconds = cases_[i].planned_s();
    if (!seconds) return "";
    planned += *seconds + kStart;
  }
  const double left = planned * (planned_s_ > 0.0 ? ran_s_ / planned_s_ : 1.0) - of_this_case;
  return left > 0.0 ? fmt::format(", about {} left", io::readable_seconds(left)) : "";
}

void Sweep::count_time(const SweepCase& one, double seconds) {
  const auto planned = one.planned_s();
  if (!planned) return;
  ran_s_ += seconds;
  planned_s_ += *planned + kStart;
}

void Sweep::end_case(std::size_t i, const ProcessEnd& end, const std::string& command, const std::string& start) {
  const SweepCase& one = cases_[i];
  // A run that its time ends is complete: that is what run.max_minutes asks for.
  const bool in_time = end.status == kPreempted && one.deck.run.max_minutes > 0.0 && !end.ran_out;
  const bool is_finished = io::status_of_run(one.run_folder()).state == "finished";
  CaseRecord record{(end.status == 0 && is_finished) || in_time, end.status, end.seconds, ""};
  if (!record.is_done) record.why = io::printable_line(reason_in(one.folder + "/" + kOutputFile));
  if (end.status == 0 && !is_finished) record.why = "its process ended with status 0, and its run is not finished";
  if (end.ran_out && !record.is_done) {
    record.why = fmt::format("sweep.timeout_s = {}: it had not ended after this time, at step {}", matrix_.timeout_s,
                             io::status_of_run(one.run_folder()).step);
  }
  write_record(one, record, command, start);
  records_[i] = record;
  count_time(one, end.seconds);
}

/// Whether the run in the folder was stopped by a signal, not by its own clock.
bool is_stopped_by_signal(const std::string& run) {
  return io::status_of_run(run).why.find("run.max_minutes") == std::string::npos;
}

void Sweep::run_case(std::size_t i, std::size_t left, StopSignals& signals) {
  const SweepCase& one = cases_[i];
  const std::string name = fmt::format("[{}/{}] {}", i + 1, cases_.size(), one.title(matrix_));
  constexpr double kPatience = 60.0;
  const FolderLock lock(one.folder, FolderLock::For::child_too, kPatience, one.folder, signals,
                        [&] { log_.say(name + ": waits for the end of its process of an earlier sweep"); });
  records_[i] = record_of(one);  // another task of a job array may have run it
  if (!is_due(i)) return;
  require_identity(matrix_, one, hashes_);
  begin_case(matrix_, one);
  const ProcessOrder process{.words = words_of(one, matrix_, order_),
                             .deck = one.folder + "/" + kDeckOfCase,
                             .output = one.folder + "/" + kOutputFile,
                             .status_file = one.folder + "/" + kStatusOfRanks,
                             .timeout_s = matrix_.timeout_s};
  const std::string start = io::time_now();
  const auto show = [&](double seconds) {
    if (!log_.interactive()) return;
    const std::int64_t step = io::status_of_run(one.run_folder()).step;
    log_.status(fmt::format("{}: step {}, {}{}", name, step, io::readable_seconds(seconds), time_left(seconds)));
  };
  const ProcessEnd end = run_process(process, signals, show);
  if (!end.ran_out && end.status == kPreempted && is_stopped_by_signal(one.run_folder())) stop(&signals);
  if (signals.first() != 0 && end.status != 0) stop(&signals);
  require_identity(matrix_, one, hashes_);
  end_case(i, end,
           fmt::format("{}={} {}", io::kDeckCopy, run::quoted_for_shell(process.deck), shell_line(process.words)),
           start);
  const CaseRecord& record = *records_[i];
  const std::string rest = left > 0 ? fmt::format("; {} to run{}", left, time_left(0.0)) : "";
  log_.say(record.is_done ? fmt::format("{}: done in {}{}", name, duration_text(end.seconds), rest)
                          : fmt::format("{}: failed with status {} after {}: {}{}", name, end.status,
                                        duration_text(end.seconds), record.why, rest));
  if (signals.first() != 0) stop(&signals);
}

void Sweep::stop(const StopSignals* signals) const {
  const auto ended = std::ranges::count_if(records_, [](const auto& record) { return record.has_value(); });
  const int signal = signals->first();
  const std::string text = fmt::format("{}: stopped by {}: {} of {} have ended; to go on: {}", matrix_.dir,
                                       signal == 0 ? "a signal to a case" : run::signal_name(signal), ended,
                                       counted(cases_.size()), command_);
  if (!signals->is_urgent()) throw Error(Failure::preempted, text);
  report_failure(kInterrupted, failure_line(0, kInterrupted, text));
  ::_exit(kInterrupted);
}

void Sweep::run() {
  StopSignals signals;  // before any thread
  const auto list = due();
  constexpr double kTasksStart = 60.0;  // tasks of a job array begin at the same time
  std::optional<FolderLock> lock;
  if (!list.empty()) {
    lock.emplace(matrix_.dir, FolderLock::For::this_process, order_.number > 0 ? kTasksStart : 0.0,
                 "sweep.dir = \"" + matrix_.dir + "\"", signals);
    before_ = read_sweep(matrix_, cases_);
    prepare_folder();
    if (order_.number > 0) lock.reset();
  }
  say_others();
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    if (records_[i] && records_[i]->is_done) count_time(cases_[i], records_[i]->seconds);
  }
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t k = 0; k < list.size(); ++k) run_case(list[k], list.size() - k - 1, signals);
  summarize(list.size(), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

void Sweep::summarize(std::size_t run, double seconds) {
  std::vector<std::string> failed;
  std::size_t done = 0;
  const CaseRecord* first = nullptr;
  for (const std::size_t i : chosen_) {
    if (records_[i]->is_done) {
      ++done;
      continue;
    }
    if (first == nullptr) first = &*records_[i];
    failed.push_back(fmt::format("{} ({})", i + 1, cases_[i].title(matrix_)));
  }
  const std::string what = run == 0 ? "nothing was run" : fmt::format("{} run in {}", run, duration_text(seconds));
  log_.say(
      fmt::format("{}: {}: {} done, {} failed; {}", matrix_.dir, counted(chosen_.size()), done, failed.size(), what));
  order_.json.print({{"sweep", matrix_.dir},
                     {"cases", chosen_.size()},
                     {"done", done},
                     {"failed", failed.size()},
                     {"run", run},
                     {"others", before_.others.size()},
                     {"seconds", seconds}});
  if (first == nullptr) return;
  const bool known = first->exit_status > 0 && first->exit_status <= static_cast<int>(Failure::non_finite);
  throw Error(known ? static_cast<Failure>(first->exit_status) : Failure::internal,
              fmt::format("{}: failed cases: {}; the first says: {}; {} runs them again", matrix_.dir,
                          fmt::join(failed, ", "), first->why, kRetry));
}

}  // namespace

void sweep(const distributed::Environment& environment, const Arguments& arguments) {
  const Order order(arguments);
  const std::string others =
      distributed::launcher_world_size([](const char* name) -> const char* { return std::getenv(name); });
  if (!others.empty()) {
    throw Error(Failure::deck, others + ": a sweep starts the ranks of its cases itself; run it without a launcher",
                Error::Seen::by_all_ranks);
  }
  Sweep sweep(order, environment, run::command_line("sweep", arguments, 1));
  if (order.array) return sweep.print_array();
  if (order.dry_run) return sweep.print_plan();
  sweep.run();
}

}  // namespace kozero::commands
