// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// evaluation_text.hpp: the line that prints a loss in a run's log and in commands.
#pragma once
#include <optional>
#include <string>

#include <kozero/train/evaluation.hpp>

namespace kozero::run {

/// "validation   loss 1.9 ..., perplexity ..., bits per byte ..."; `what` is the line's first word.
std::string evaluation_line(double loss, const std::optional<double>& bytes_per_token,
                            const std::string& what = "validation");

/// "web          loss 1.9 ..., perplexity ..., bits per byte ..., 6,451 tokens"
std::string source_line(const train::SourceEvaluation& source);

/// loss in nats per token -> bits per byte of text.
double bits_per_byte(double loss, double bytes_per_token);

}  // namespace kozero::run
