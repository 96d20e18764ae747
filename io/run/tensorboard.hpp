// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tensorboard.hpp: the numbers of metrics.jsonl as an event file of TensorBoard (log.tensorboard).
//   RUN/tensorboard/events.out.tfevents.SECONDS.HOST.PID
// A record is its length, the length's checksum, a protocol buffer `Event`, and its checksum (TensorFlow's record.proto
// and event.proto). A file of a resumed run tells TensorBoard to drop the points of the steps that are repeated.
#pragma once
#include <cstdint>
#include <string>

#include "io/posix/file.hpp"
#include "io/run/metrics.hpp"

namespace kozero::io {

inline constexpr const char* kTensorBoardFolder = "tensorboard";  ///< in a run's folder

class TensorBoardFile {
 public:
  /// Creates the folder, and a file in it for the steps from `first_step` on. Throws Error(write).
  TensorBoardFile(const std::string& folder, std::int64_t first_step);
  /// One point for each number of the row, under its path in metrics.jsonl: "loss", "seconds/update". Numbers that are
  /// null have no point. Throws Error(write); a part of a row may then be in the file, which readers skip.
  void write(const StepMetrics& row);

 private:
  FileDescriptor file_;
};

}  // namespace kozero::io
