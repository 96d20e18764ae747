// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// generation_report.hpp: what `generate` says about memory and rates, for texts and for chat.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include <kozero/core/ledger.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/generator.hpp>

namespace kozero::commands {

/// A generator whose cache has room for `sequences` of `positions` tokens. Throws Error(deck), seen by all ranks, if
/// the memory is not there; `remedy`: what to do then. Rank 0 prints the bytes of the booked arrays: weights, cache,
/// others.
train::CachedGenerator make_generator(run::TrainedModel& trained, std::int64_t vocab, std::int64_t sequences,
                                      std::int64_t positions, const std::string& remedy);

/// "rate         prompt 12 tokens in 0.01 s, ...; generated 100 tokens in ..."
std::string rate_line(const train::GenerationTimes& times);

/// Appends tokens, seconds and rates.
void add_rates(nlohmann::ordered_json& json, const train::GenerationTimes& times);

}  // namespace kozero::commands
