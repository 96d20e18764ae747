// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// timeline.hpp: what each rank did in some steps of a run, as one trace file per rank (log.timeline).
//   timeline.begin(step, number); a step; timeline.end(step);    ...    timeline.finish()
//   RUN/timeline/step_000000003/rank_0.json
// The files are in the Trace Event Format with the names and arguments of PyTorch's profiler, which Perfetto,
// chrome://tracing and Holistic Trace Analysis read (docs/timeline.md). Times are microseconds since a barrier, so that
// the rows of several hosts agree within the time of one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/events.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/run/kernel_profile.hpp>
#include "io/deck/deck.hpp"
#include "io/run/run_folder.hpp"

namespace kozero::run {

class Timeline {
 public:
  /// Files go into the run's folder, which all ranks can write. `profile`: nullptr if log.timeline records nothing
  /// here.
  Timeline(const io::LogKeys& keys, const distributed::Communicator& data, distributed::Communicator& control,
           std::shared_ptr<const io::HeldFolder> run, KernelProfile* profile);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// `step` begins, the `number`-th of this process, from 1. Collective if it is the first one that is recorded.
  void begin(std::int64_t step, std::int64_t number);
  /// `step` ends, with its evaluation and its save. After the last one that is recorded, writes the file.
  void end(std::int64_t step);
  /// Writes what was recorded, if the run ends before the last step to record.
  void finish();

 private:
  struct Step {
    std::int64_t step;
    Event::Clock::time_point begin, end;
  };

  /// The folder of the first recorded step.
  [[nodiscard]] std::string folder() const;
  /// A failure is a line on stderr, and training goes on without the timeline.
  template <class Action>
  void attempt(const Action& action) const;
  [[nodiscard]] std::string text(const EventRing::Kept& kept, const KernelProfile::Record& kernels) const;

  const io::LogKeys& keys_;
  const distributed::Communicator& data_;
  distributed::Communicator& control_;
  std::shared_ptr<const io::HeldFolder> run_;
  KernelProfile* profile_;
  bool is_over_;        // nothing is recorded any more
  bool began_ = false;  // the first step to record has begun
  std::int64_t first_ = 0;
  Event::Clock::time_point zero_;  // at the barrier
  std::vector<Step> steps_;
};

}  // namespace kozero::run
