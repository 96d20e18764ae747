// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// evaluation_text.cpp: a loss in nats per token, as perplexity exp(loss) and as bits per byte of text.
#include <fmt/format.h>
#include <cmath>
#include <numbers>

#include <kozero/run/evaluation_text.hpp>
#include "io/posix/readable.hpp"
#include "io/run/metrics.hpp"

namespace kozero::run {

double bits_per_byte(double loss, double bytes_per_token) { return loss / std::numbers::ln2 / bytes_per_token; }

std::string evaluation_line(double loss, const std::optional<double>& bytes_per_token, const std::string& what) {
  std::string line = fmt::format("{:<12} loss {}, perplexity {:.2f}", what, io::loss_text(loss), std::exp(loss));
  if (bytes_per_token) line += fmt::format(", {:.4f} bits per byte", bits_per_byte(loss, *bytes_per_token));
  return line;
}

std::string source_line(const train::SourceEvaluation& source) {
  return evaluation_line(source.loss, source.bytes_per_token, source.name) + ", " + io::grouped_digits(source.tokens) +
         " tokens";
}

}  // namespace kozero::run
