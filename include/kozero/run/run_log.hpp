// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_log.hpp: the banner of a run, its line about the loss, and text that several commands print.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <kozero/plan/memory_plan.hpp>
#include <kozero/train/runtime.hpp>

namespace kozero::run {

inline constexpr double kMiB = 1024.0 * 1024.0;

struct Banner {
  const io::Deck& deck;
  const train::Settings& settings;
  const plan::MemoryPlan& plan;
  const dist::Communicator& comm;
  const train::Runtime& runtime;
  const ParameterTable& parameters;
  const std::string& data;
  const std::string& folder;
};

std::vector<std::string> lines_of(const Banner& banner);

/// "validation   loss 1.9 ..., perplexity ..., bits per byte ..."; `what` is it that was evaluated.
std::string evaluation_line(double loss, const std::optional<double>& bytes_per_token,
                            const std::string& what = "validation");

/// loss in nats per token -> bits per byte of text.
double bits_per_byte(double loss, double bytes_per_token);

}  // namespace kozero::run
