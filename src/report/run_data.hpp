// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_data.hpp: what a report says about one run, read from its folder in bounded memory.
//   metrics.jsonl   curves of a bounded number of points; medians and means over a bounded sample of the steps
//   deck.toml       read as lines, so that decks of other versions and damaged ones are read too
//   log.txt         the planned memory and the sample text
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <kozero/report/gnuplot.hpp>
#include "io/run/run_status.hpp"

namespace kozero::report {

inline constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct RunData {
  using Points = std::vector<Curve::Point>;

  std::string folder;
  std::map<std::string, std::string> heading;  ///< of deck.toml: command, started, commit, ...
  std::map<std::string, std::string> deck;     ///< "zero.stage" -> "2", as in the file
  io::RunStatus status;
  bool killed = false;  ///< the status says running, but the process on this host is gone
  std::int64_t ranks = 1;

  std::int64_t rows = 0;
  std::int64_t last_step = 0;
  std::int64_t bad_losses = 0;  ///< steps whose loss is not finite
  std::int64_t first_bad_step = 0;
  double tokens = 0.0, seconds = 0.0;                              ///< up to the last step
  double first_loss = kNone, last_loss = kNone, last_val = kNone;  ///< nats per token; validation: the newest
  double step_s = kNone, tokens_per_s = kNone;                     ///< medians, without the first step
  Points loss_steps, loss_tokens, loss_seconds, val_steps, rate_steps, lr_steps, norm_steps;
  std::map<std::string, double> phases;      ///< mean seconds per step on rank 0, as metrics.jsonl names them
  std::map<std::string, double> bytes_sent;  ///< mean bytes per step of rank 0
  std::map<std::string, double> calls;       ///< mean collectives per step of rank 0
  std::map<std::string, double> memory;      ///< bytes of rank 0 after the last step
  double planned_bytes = kNone;              ///< arrays per rank
  double parameters = kNone;                 ///< of the model
  std::vector<std::string> checkpoints;
  std::string sample;

  /// A member of `phases`, `bytes_sent`, `calls` or `memory`; 0 if it is absent.
  [[nodiscard]] static double in(const std::map<std::string, double>& means, const std::string& name);
  /// Seconds per step in which rank 0 was in collectives, waiting or moving bytes: the exposed communication.
  [[nodiscard]] double communication() const;
  /// The deck's value, "" if it is absent.
  [[nodiscard]] std::string value(const std::string& key) const;
};

/// "4" for "4.0" and "4"; other text without quotes.
std::string plain_value(const std::string& text);

/// Never throws because of a damaged or missing file: the run then has fewer facts. `points`: at most, per curve.
RunData read_run(const std::string& folder, std::size_t points);

/// Losses of the first million steps, by step; NaN: none.
std::vector<double> losses_of(const std::string& folder);

/// The first step at which the run's loss has other bits; 0 if all common steps are equal; -1 without common steps.
std::int64_t first_other_loss(const std::string& folder, const std::vector<double>& losses);

}  // namespace kozero::report
