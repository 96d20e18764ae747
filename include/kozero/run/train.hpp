// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// train.hpp: a whole training run, from a checked deck to its folder's last line.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kozero/run/kernel_profile.hpp>
#include <kozero/run/session.hpp>

namespace kozero::run {

/// `kozero train ARGUMENTS`
struct StartedAs {
  std::vector<std::string> arguments;
  bool verify_data = false;  ///< first read and check whole token shards, like data.strict
  bool steal_lock = false;
  KernelProfile* profile = nullptr;  ///< for log.timeline, if this rank records
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();  ///< for run.max_minutes
};

/// The numbers of a run that `--json` prints.
struct RunSummary {
  std::string folder;
  std::int64_t steps = 0;
  double first_loss = 0.0;
  double last_loss = 0.0;
  std::optional<double> val_loss;
  double median_tokens_per_s = 0.0;  ///< of at most ThinnedSeries::kCapacity steps, evenly spaced over the run
  std::int64_t peak_memory = 0;      ///< bytes of the rank with most
  std::int64_t skipped_steps = 0;    ///< updates skipped by this process
};

/// With a curriculum, one lesson after the other, each from the last checkpoint of the one before. Throws Error, seen
/// by all ranks; once the run has its folder, the error has been reported already. Collective.
RunSummary train(Session& session, const StartedAs& started);

}  // namespace kozero::run
