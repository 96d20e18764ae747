// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// verify.cpp: the command `verify`: the same steps in every stage, on several numbers of ranks and with every back end.
// All bits are compared with the first layout's, or with a trace that a process with other threads may have written.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <iostream>
#include <optional>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/provenance.hpp>
#include <kozero/run/trace.hpp>
#include <kozero/run/unsaved_run.hpp>
#include "io/posix/file.hpp"
#include "src/commands/verify.hpp"

namespace kozero::commands {

using program::DeckArguments;
using program::Option;
using program::OptionParser;
using run::Difference;
using run::Session;
using run::Trace;
using run::UnsavedRun;

namespace {

/// The ranks, groups, threads, stage and back end that computed the steps.
struct Layout {
  int ranks = 1;
  int ranks_per_group = 1;
  int stage = 0;
  std::string backend;
  int threads = 1;  ///< per rank
};

/// "4", or "2x2": 2 groups of 2.
std::string ranks_of(const Layout& layout) {
  if (layout.ranks_per_group == layout.ranks) return std::to_string(layout.ranks);
  return fmt::format("{}x{}", layout.ranks / layout.ranks_per_group, layout.ranks_per_group);
}

std::string row_of(const Layout& layout, const Trace& trace, const std::string& differs) {
  return fmt::format("{:>5}  {:>5}  {:>8}  {:>7}  {:>22.17g}  {:>22.17g}  {:012x}  {}\n", ranks_of(layout),
                     layout.stage, layout.backend, layout.threads, trace.losses.back(), trace.norms.back(),
                     trace.hash() >> 16U, differs.empty() ? "equal" : "DIFFERS in " + differs);
}

std::string threads_text(int threads) { return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s"); }

/// Computes the steps in one layout after the other, and compares each with the first.
class Verification {
 public:
  /// `reference`: on rank 0 the trace of an earlier process, if any.
  Verification(const data::DataSet& data, std::int64_t steps, int threads, std::optional<Trace> reference)
      : data_(data), steps_(steps), threads_(threads), first_(std::move(reference)) {}

  /// Computes the steps on the group's ranks and prints a row. Collective over the group.
  void add(Session& group, const io::Deck& deck, int threads);

  // Of rank 0 alone.
  [[nodiscard]] const std::string& first_difference() const { return difference_; }
  [[nodiscard]] const Trace& first() const { return *first_; }

 private:
  Trace trace_of(UnsavedRun& run) const;
  void keep_weights(Trace& trace, train::Engine& engine) const;
  std::string difference_from_first(const Trace& trace, train::Engine& engine, distributed::Communicator& comm) const;

  const data::DataSet& data_;
  std::int64_t steps_;
  int threads_;
  std::optional<Trace> first_;
  std::string difference_;
};

Trace Verification::trace_of(UnsavedRun& run) const {
  const ParameterTable& table = run.engine().parameters();
  Trace trace;
  trace.threads = threads_;
  for (std::int64_t step = 1; step <= steps_; ++step) {
    const auto result = run.step(step);
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.grad_norm);
    trace.hashes.push_back(zero::tensor_hashes(table, run.engine().master()));
  }
  run.engine().require_unchanged_disk();
  for (const auto& tensor : table.tensors()) trace.tensors.push_back(tensor.name);
  return trace;
}

/// Keeps whole weights to name the first different element, unless the model is too large for one rank.
void Verification::keep_weights(Trace& trace, train::Engine& engine) const {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 28;
  if (engine.parameters().extent() > kMostElements) return;
  for (int tensor = 0; tensor < std::ssize(engine.parameters().tensors()); ++tensor) {
    std::vector<float> values = run::whole_tensor(engine.parameters(), tensor, engine.master());
    if (engine.comm().rank() == 0) trace.weights.push_back(std::move(values));
  }
}

std::string Verification::difference_from_first(const Trace& trace, train::Engine& engine,
                                                distributed::Communicator& comm) const {
  std::optional<Difference> found;
  if (comm.rank() == 0) found = difference(*first_, trace);
  const bool has_element = found && found->tensor && !first_->weights.empty();
  const int tensor = distributed::broadcast_value(comm, has_element ? *found->tensor : -1);
  if (tensor >= 0) {
    const std::string& name = engine.parameters().tensors()[static_cast<std::size_t>(tensor)].name;
    const std::vector<float> values = run::whole_tensor(engine.parameters(), tensor, engine.master());
    if (comm.rank() == 0) {
      const std::string element =
          run::element_difference(name, first_->weights[static_cast<std::size_t>(tensor)], values, trace.losses.size());
      if (!element.empty()) found->text += "; " + element;
    }
  }
  return found ? found->text : "";
}

void Verification::add(Session& group, const io::Deck& deck, int threads) {
  distributed::Communicator& comm = group.control();
  UnsavedRun run(group, deck, data_);
  const Layout layout{.ranks = comm.size(),
                      .ranks_per_group = run.settings().ranks_per_group,
                      .stage = static_cast<int>(deck.zero.stage),
                      .backend = group.backend(),
                      .threads = threads};
  Trace trace = trace_of(run);
  if (distributed::broadcast_value(comm, first_.has_value())) {
    const std::string differs = difference_from_first(trace, run.engine(), comm);
    if (comm.rank() == 0) std::cout << row_of(layout, trace, differs) << std::flush;
    if (differs.empty() || !difference_.empty()) return;
    difference_ = fmt::format(
        "{} rank{}, stage {}, {}, {}{}: {}", ranks_of(layout), layout.ranks == 1 ? "" : "s", layout.stage,
        layout.backend, threads_text(layout.threads),
        layout.threads == first_->threads ? "" : " (" + threads_text(first_->threads) + " before)", differs);
  } else {
    keep_weights(trace, run.engine());
    if (comm.rank() == 0) std::cout << row_of(layout, trace, "") << std::flush;
    if (comm.rank() == 0) first_ = std::move(trace);
  }
}

/// The values of --ranks, ascending, or the number of started ranks. Throws Error(deck), seen by all ranks.
std::vector<std::int64_t> rank_counts(const VerifyOptions& options, const io::Deck& deck,
                                      const distributed::Environment& environment, Session& session,
                                      const Arguments& arguments) {
  std::vector<std::int64_t> counts = options.ranks;
  if (counts.empty()) return {environment.size()};
  std::ranges::sort(counts);
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  if (counts.back() > environment.size()) {
    throw Error(Failure::deck,
                fmt::format("--ranks: {} ranks are needed and {} started: {}", counts.back(), environment.size(),
                            run::command_line("verify", arguments, static_cast<int>(counts.back()))),
                Error::Seen::by_all_ranks);
  }
  if (counts.size() > 1 && !options.all && !distributed::adds_in_order(session.backend(), deck.comm.exact)) {
    throw Error(Failure::deck,
                "--ranks: comm.backend = " + session.backend() +
                    " adds in an order of its own, so that numbers of ranks differ; accepted is one number, or "
                    "comm.exact=true, or comm.backend=mpi or shm",
                Error::Seen::by_all_ranks);
  }
  const bool batch_grows = deck.train.batch_scaling != "none" || deck.train.accumulate > 0;
  if (batch_grows && counts.size() > 1) {
    throw Error(Failure::deck,
                "--ranks: with train.accumulate or train.batch_scaling each number of ranks trains on another batch; "
                "accepted is one number, or train.global_batch in their place",
                Error::Seen::by_all_ranks);
  }
  return counts;
}

/// With --all the back ends that add in rank order and serve so many ranks; otherwise only the deck's.
std::vector<std::string> back_ends(const VerifyOptions& options, int ranks,
                                   const distributed::Environment& environment) {
  if (!options.all) return {""};
  return distributed::back_ends_in_order(ranks, environment.local_ranks() == environment.size());
}

/// zero.shard_group's values: the deck's, and with --all the largest group that is not all ranks.
std::vector<io::WordOrNumber> groups_of(const VerifyOptions& options, int ranks, const io::Deck& deck) {
  std::vector<io::WordOrNumber> groups = {deck.zero.shard_group};
  if (!options.all || deck.zero.shard_group != "all") return groups;
  for (int group = ranks / 2; group > 0 && groups.size() == 1; --group) {
    if (ranks % group == 0) groups.emplace_back(std::int64_t{group});
  }
  return groups;
}

/// Rank 0's trace; nullopt on other ranks, or without a file. Throws Error(input), seen by all ranks.
std::optional<Trace> reference_of(const VerifyOptions& options, const io::Deck& deck, const data::DataSet& data,
                                  distributed::Communicator& comm) {
  return distributed::agreed(comm, [&]() -> std::optional<Trace> {
    if (options.reference.empty() || comm.rank() != 0 || !io::is_there(options.reference)) return std::nullopt;
    Trace trace = run::read_trace(options.reference);
    const plan::PlannedEngine engine(train::settings_of(deck, 1, data.vocab, data.train->num_samples()));
    const auto has_name = [](const Tensor& tensor, const std::string& name) { return tensor.name == name; };
    const auto& tensors = engine->parameters().tensors();
    if (std::ranges::equal(tensors, trace.tensors, has_name) && std::ssize(trace.losses) == options.steps) return trace;
    throw Error(Failure::input, options.reference +
                                    ": it is of another model or another number of steps; remove it to have it "
                                    "written anew");
  });
}

void print_header(const std::string& deck, std::int64_t steps) {
  std::cout << fmt::format(
      "{}: {} steps, every bit of losses, gradient norms and weights\n\nranks  stage  back end  threads  "
      "{:>22}  {:>22}  {:>12}\n",
      escaped(deck), steps, "last loss", "last gradient norm", "weights");
}

/// Prints the conclusion. `reference_threads` is 0 without a reference.
void print_end(const VerifyOptions& options, const std::vector<std::int64_t>& counts, int threads,
               int reference_threads) {
  std::cout << fmt::format("\nall stages{} agree bit for bit on {} rank{} of {}", options.all ? " and back ends" : "",
                           fmt::join(counts, ", "), counts == std::vector<std::int64_t>{1} ? "" : "s",
                           threads_text(threads));
  if (reference_threads > 0) {
    std::cout << ", and with those of " << threads_text(reference_threads);
  }
  std::cout << "\n" << std::flush;
}

/// "" if the text is an integer >= 1, else the refusal.
std::string refuse_non_positive(const std::string& text) {
  return program::integer_in(text).value_or(0) >= 1 ? "" : "\"" + text + "\"; accepted: integer >= 1";
}

}  // namespace

void VerifyOptions::add_to(OptionParser& parser) {
  const Option first =
      parser.add("--steps", steps, "steps to compute under each ZeRO stage").type_name("N").check(refuse_non_positive);
  const Option counts = parser.add("--ranks", ranks, "on each of these numbers of ranks, as 1,2,4")
                            .type_name("N,...")
                            .default_text("those that were started")
                            .delimiter(',')
                            .between(std::int64_t{1}, std::int64_t{1} << 20);
  const Option everything =
      parser.add_flag("--all", all, "by every back end that adds in rank order, and in groups of ranks");
  const Option file = parser
                          .add("--reference", reference,
                               "compare with the steps in FILE, of any number of threads; write it if there is none")
                          .type_name("FILE")
                          .default_text("none");
  parser
      .add("--replay", replayed,
           "of a RUN: compute this step again from its nearest checkpoint and compare bits; status 0 if they are "
           "equal, 1 if they are not")
      .type_name("N")
      .default_text("none")
      .check(refuse_non_positive)
      .excludes(first)
      .excludes(counts)
      .excludes(everything)
      .excludes(file);
}

void verify(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("verify");
  DeckArguments deck_arguments;
  deck_arguments.add_to(parser);
  VerifyOptions options;
  options.add_to(parser);
  parser.parse(arguments);
  if (options.replayed > 0) {
    return run::replay(environment, deck_arguments.path, deck_arguments.overrides, options.replayed);
  }

  Session session(environment, [&](distributed::Communicator& early) { return deck_arguments.read(early); });
  distributed::Communicator& comm = session.control();
  io::Deck deck = session.deck();
  deck.zero.accumulation = "ordered";
  const auto counts = rank_counts(options, deck, environment, session, arguments);
  const data::DataSet data = run::open_data_of(deck, comm);
  std::optional<Trace> reference = reference_of(options, deck, data, comm);
  const bool has_reference = reference.has_value();
  const auto settings = distributed::agreed(comm, [&] {
    for (const std::int64_t count : counts) train::ranks_per_group(deck, static_cast<int>(count));
    return train::settings_of(deck, static_cast<int>(counts.back()), data.vocab, data.train->num_samples());
  });
  const int threads = session.runtime().threads();
  const int reference_threads = has_reference ? reference->threads : 0;
  Verification verification(data, options.steps, threads, std::move(reference));

  if (environment.rank() == 0) print_header(deck.source, options.steps);
  for (const std::int64_t count : counts) {
    const distributed::FirstRanks ranks(environment.world(), static_cast<int>(count));
    // The other ranks learn here what all ranks of the group throw; otherwise they would wait in vain.
    distributed::agreed(comm, [&] {
      if (!ranks.contain_me()) return;
      for (const std::string& name : back_ends(options, static_cast<int>(count), environment)) {
        Session group(session, ranks, name);
        for (const io::WordOrNumber& shard_group : groups_of(options, static_cast<int>(count), session.deck())) {
          deck.zero.shard_group = shard_group;
          for (deck.zero.stage = 0; deck.zero.stage <= 3; ++deck.zero.stage) {
            if (deck.zero.stage == 0 && shard_group != session.deck().zero.shard_group) continue;  // nothing is sharded
            verification.add(group, deck, threads);
          }
        }
      }
    });
  }
  const std::string differs = comm.broadcast_control(verification.first_difference());
  if (!differs.empty()) {
    throw Error(Failure::internal, "the bits differ: " + differs, Error::Seen::by_all_ranks);
  }
  distributed::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    if (!options.reference.empty() && !has_reference) run::write_trace(options.reference, verification.first());
    print_end(options, counts, threads, reference_threads);
  });
}

}  // namespace kozero::commands
