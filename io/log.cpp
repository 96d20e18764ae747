// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include <kozero/core/error.hpp>
#include <kozero/io/log.hpp>
#include <kozero/io/utf8.hpp>

namespace kozero::io {

namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

/// KOZERO_TERMINAL: a launcher stands between this rank and a terminal of so many columns; 0 where it does not say.
int told_width() {
  const char* columns = std::getenv("KOZERO_TERMINAL");
  return columns == nullptr ? 0 : std::atoi(columns);
}

/// Whether a line may be written over: https://no-color.org asks for no control sequences, and some terminals have
/// none.
bool wants_plain_text() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_color != nullptr && *no_color != '\0') || (terminal != nullptr && std::string_view(terminal) == "dumb");
}

}  // namespace

int terminal_width() {
  struct winsize size {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int told = told_width();
  return told > 0 ? told : 80;
}

Log Log::on_standard_output() {
  const bool is_terminal = ::isatty(STDOUT_FILENO) != 0 || told_width() > 0;
  return Log(std::cout, is_terminal && !wants_plain_text());
}

Log::~Log() {
  if (status_shown_) status("");
}

void Log::record_in(const std::string& path) {
  if (terminal_ == nullptr) return;
  file_ = LineFile(path, LineFile::Open::append);
}

void Log::say(std::string_view given) {
  if (terminal_ == nullptr) return;
  if (status_shown_) status("");
  const std::string line = printable(given);
  *terminal_ << line << '\n' << std::flush;
  note(line);
}

void Log::note(std::string_view line) {
  if (!file_.is_open()) return;
  try {
    file_.append(printable(line));
    file_lacks_lines_ = false;
  } catch (const Error& problem) {
    if (file_lacks_lines_) return;
    file_lacks_lines_ = true;
    if (status_shown_) status("");
    *terminal_ << "warning      " << problem.what() << "; lines are missing there until it can be written again\n"
               << std::flush;
  }
}

void Log::status(std::string_view line) {
  if (!interactive_) return;
  *terminal_ << kClearLine << line.substr(0, static_cast<std::size_t>(terminal_width() - 1)) << std::flush;
  status_shown_ = !line.empty();
}

}  // namespace kozero::io
