// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// generation_report.cpp: the memory of a generator and the rates of a generation, as lines and as JSON.
#include "src/commands/generation_report.hpp"
#include <fmt/format.h>
#include <iostream>
#include <nlohmann/json.hpp>

#include <kozero/run/session.hpp>
#include <kozero/run/start_checks.hpp>
#include "io/posix/readable.hpp"

namespace kozero::commands {
namespace {

double rate(std::int64_t tokens, double seconds) { return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0; }

/// Bytes of the booked arrays: weights, cache, others.
std::string memory_line(const MemoryLedger& ledger, std::int64_t sequences, std::int64_t positions) {
  std::int64_t cache = 0;
  for (const auto& line : ledger.lines()) {
    if (line.label.find(" cached ") != std::string::npos) cache += line.bytes;
  }
  const std::int64_t weights = ledger.bytes(Memory::parameters) + ledger.bytes(Memory::gathered);
  return fmt::format("memory       weights {}, cache {} for {} x {} tokens, other {}", io::readable_bytes(weights),
                     io::readable_bytes(cache), sequences, positions,
                     io::readable_bytes(ledger.total() - weights - cache));
}

}  // namespace

train::CachedGenerator make_generator(run::TrainedModel& trained, std::int64_t vocab, std::int64_t sequences,
                                      std::int64_t positions, const std::string& remedy) {
  run::require_room_for(train::CachedGenerator::bytes(trained.evaluator(), sequences, positions),
                        fmt::format("the cache for {} x {} tokens", sequences, positions), remedy, trained.session());
  train::CachedGenerator generator(trained.evaluator(), vocab, sequences, positions, trained.ledger());
  if (trained.session().is_first_rank()) {
    std::cerr << memory_line(trained.ledger(), sequences, positions) << std::endl;
  }
  return generator;
}

std::string rate_line(const train::GenerationTimes& times) {
  return fmt::format(
      "rate         prompt {} tokens in {:.2f} s, {:.1f} tokens/s; generated {} tokens in {:.2f} s, {:.1f} "
      "tokens/s",
      times.prompt_tokens, times.prompt_s, rate(times.prompt_tokens, times.prompt_s), times.step_tokens, times.step_s,
      rate(times.step_tokens, times.step_s));
}

void add_rates(nlohmann::ordered_json& json, const train::GenerationTimes& times) {
  json["prompt_tokens"] = times.prompt_tokens;
  json["prompt_s"] = times.prompt_s;
  json["step_tokens"] = times.step_tokens;
  json["step_s"] = times.step_s;
  json["prompt_tokens_per_s"] = rate(times.prompt_tokens, times.prompt_s);
  json["tokens_per_s"] = rate(times.step_tokens, times.step_s);
}

}  // namespace kozero::commands
