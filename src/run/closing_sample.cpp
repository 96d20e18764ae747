// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// closing_sample.cpp: the text that rank 0 samples from the model after the run is finished (log.sample), within a
// limit of time. The other ranks wait in a barrier, in which they sleep.
#include <fmt/format.h>
#include <chrono>
#include <sstream>

#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/run/stop_signals.hpp>
#include <kozero/train/generator.hpp>
#include "src/run/run_log.hpp"

namespace kozero::run {
namespace {

constexpr int kSampleSeconds = 5;  // restarts.sh ends a launcher 10 s after the run

/// The new tokens of one sequence.
class OneText : public train::TokenListener {
 public:
  void on_token(std::int64_t /*sequence*/, Token token) override { tokens.push_back(token); }
  void on_end(std::int64_t /*sequence*/, bool /*ended_by_token*/) override {}
  std::vector<Token> tokens;
};

}  // namespace

std::string RunLog::sample_unavailable_reason() const {
  if (settings_.offload.parameters == MemorySource::Kind::disk) {  // each token would read all weights from the disk
    return "the weights are on a disk; kozero generate " + start_.folder() + " reads them into memory";
  }
  const auto parameters = zero::placement_row(settings_.zero.stage).parameters;
  if (on_ranks_.mesh().all->size() == 1 || parameters == distributed::Placement::replicated) return "";
  return "the ranks would gather all weights for each token; kozero generate " + start_.folder() + " writes one";
}

void RunLog::sample_alone() {
  const auto start = std::chrono::steady_clock::now();
  train::GenerationOrder order{.prompts = {data_.tokenizer->line_end()},
                               .count = deck_.log.sample,
                               .sampling = {.temperature = 0.8, .top_k = 40, .seed = settings_.seed},
                               .alone = true};
  std::string cut;
  order.ends = [&](Token) {
    if (stop_signal() != 0) {
      cut = signal_name(stop_signal()) + " came";
    } else if (std::chrono::steady_clock::now() - start > std::chrono::seconds(kSampleSeconds)) {
      cut = fmt::format("{} s have passed", kSampleSeconds);
    }
    return !cut.empty();
  };
  train::CachedGenerator generator(engine_, data_.tokenizer->vocab_size(), 1, order.longest(), on_ranks_.ledger());
  OneText text;
  generator.run(order, text);
  std::istringstream lines(data_.tokenizer->decode(text.tokens));
  for (std::string line; std::getline(lines, line);) log_.say("    " + line);
  if (!cut.empty()) log_.say(fmt::format("note         the sample ends after {} tokens: {}", text.tokens.size(), cut));
}

void RunLog::say_sample() {
  const Phase phase("sampling");
  const bool is_asked = deck_.is_set("log.sample");
  if (deck_.log.sample == 0 || (data_.tokenizer == nullptr && !is_asked)) return;
  const std::string reason = data_.tokenizer == nullptr ? "the data have no tokenizer" : sample_unavailable_reason();
  if (!reason.empty()) return log_.say("no sample of text, since " + reason);
  log_.say(fmt::format("a sample of what it writes, in {} tokens and {} s at most (log.sample):", deck_.log.sample,
                       kSampleSeconds));
  distributed::Communicator& comm = start_.control_comm();
  if (comm.rank() == 0) {
    try {
      sample_alone();
    } catch (const std::exception& problem) {
      log_.say(std::string("note         no sample: ") + problem.what());
    }
  }
  try {
    comm.barrier();
  } catch (const Error&) {  // rank 0 was lost; the run is complete
  }
}

}  // namespace kozero::run
