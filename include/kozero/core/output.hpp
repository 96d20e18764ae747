// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// output.hpp: writes to a pipe, a socket or a terminal that never wait for its reader.
//   keep_from_waiting_for_reader();            from now on std::cout does not wait
//   drain_standard_output(5s);                 before the process ends
// A reader may be slow, suspended (a pager, Ctrl-S) or gone. What the system does not accept at once is kept, up to
// kMostKept bytes, and written by later calls. Once that is full, lines are left out until all of it is read; then one
// line says how many, and the newest lines follow, so that the last ones are not lost. The descriptor itself is not
// changed (O_NONBLOCK would affect all programs that share the terminal): the pipe or terminal is opened once more.
#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace kozero {

class QueuedOutput {
 public:
  static constexpr std::size_t kMostKept = std::size_t{1} << 18;

  explicit QueuedOutput(int descriptor);
  ~QueuedOutput();
  QueuedOutput(const QueuedOutput&) = delete;
  QueuedOutput& operator=(const QueuedOutput&) = delete;

  /// Writes or keeps the bytes, or leaves them out. Returns false once nothing can be written any more (problem()).
  bool write(std::string_view bytes);
  /// Waits until everything kept is written, at most for as long as nothing is accepted within `patience`. A second
  /// call does not wait again if nothing was accepted since the first. Returns whether everything is written.
  bool drain(std::chrono::milliseconds patience);
  /// Whether bytes are kept.
  [[nodiscard]] bool is_behind();
  /// Lines left out so far.
  [[nodiscard]] std::int64_t lines_left_out();
  /// errno of the write that failed, such as EPIPE or ENOSPC; 0 if none has.
  [[nodiscard]] int problem();
  /// For poll(2): writable once the reader has read.
  [[nodiscard]] int descriptor() const { return own_ >= 0 ? own_ : given_; }

 private:
  /// The result of write(2), without waiting.
  [[nodiscard]] std::int64_t write_some(std::string_view bytes) const;
  /// Writes what the system accepts; returns whether it accepted anything.
  bool flush();
  void leave_out(std::string_view bytes);

  int given_;
  int own_ = -1;            // the same pipe or terminal, opened with O_NONBLOCK
  std::timed_mutex mutex_;  // of the members below
  std::string kept_;
  std::string newest_;              // while lines are left out
  std::int64_t left_out_ = 0;       // lines
  std::int64_t left_out_then_ = 0;  // of them, those that a line has reported
  bool leaving_out_ = false;
  bool gave_up_ = false;
  int problem_ = 0;
};

/// From now on std::cout does not wait if standard output is a pipe, a socket or a terminal; a file is written as
/// before. A failed write sets std::cout's badbit.
void keep_from_waiting_for_reader();

/// QueuedOutput::drain() of std::cout; true if keep_from_waiting_for_reader() had nothing to do.
bool drain_standard_output(std::chrono::milliseconds patience);

/// QueuedOutput::lines_left_out() of std::cout.
std::int64_t lines_left_out_of_standard_output();

}  // namespace kozero
