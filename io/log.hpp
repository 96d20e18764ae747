// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// log.hpp: what the run tells: rank 0's lines, on the terminal and in log.txt; other ranks have a silent log.
// A terminal's last line may be a status that comes and goes (a progress bar); said lines appear above it. A log.txt
// that cannot be written ends no run: the terminal has the lines, and says once that the file lacks them.
#pragma once
#include <iosfwd>
#include <string>
#include <string_view>

#include <kozero/io/posix/line_file.hpp>

namespace kozero::io {

class Log {
 public:
  /// Silent: other ranks.
  Log() = default;
  /// Speaks to `terminal`. `interactive`: statuses are shown there.
  Log(std::ostream& terminal, bool interactive) : terminal_(&terminal), interactive_(interactive) {}
  /// Rank 0's on standard output, interactive where that is a terminal, or KOZERO_TERMINAL says how wide one is that a
  /// launcher stands before; but not where NO_COLOR is set or TERM is "dumb".
  static Log on_standard_output();
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// Appends to the file from now on. Throws Error(write) where it cannot be opened. Nothing on a silent log.
  void record_in(const std::string& path);

  /// A line for both. Both show it as printable() makes it (utf8.hpp).
  void say(std::string_view line);
  /// A line for the file alone.
  void note(std::string_view line);
  /// Replaces the terminal's status, cut to its width; "" removes it.
  void status(std::string_view line);
  [[nodiscard]] bool interactive() const { return interactive_; }

 private:
  std::ostream* terminal_ = nullptr;
  bool interactive_ = false;
  bool status_shown_ = false;
  LineFile file_;
  bool file_lacks_lines_ = false;
};

/// Columns of the terminal on standard output, 80 where unknown.
int terminal_width();

}  // namespace kozero::io
