// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

#include <kozero/core/error.hpp>
#include <kozero/io/log.hpp>

namespace kozero::io {

namespace {
constexpr std::string_view kClearLine = "\r\x1b[K";
}  // namespace

int terminal_width() {
  struct winsize size {};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

Log Log::on_standard_output() { return Log(std::cout, ::isatty(STDOUT_FILENO) != 0); }

Log::~Log() {
  if (status_shown_) status("");
}

void Log::record_in(const std::string& path) {
  if (terminal_ == nullptr) return;
  path_ = path;
  file_.open(path, std::ios::app);
  if (!file_) throw Error(Failure::write, path + ": cannot create");
}

void Log::say(std::string_view line) {
  if (terminal_ == nullptr) return;
  if (status_shown_) status("");
  *terminal_ << line << '\n' << std::flush;
  note(line);
}

void Log::note(std::string_view line) {
  if (!file_.is_open()) return;
  file_ << line << '\n' << std::flush;
  if (!file_) throw Error(Failure::write, path_ + ": cannot write");
}

void Log::status(std::string_view line) {
  if (!interactive_) return;
  *terminal_ << kClearLine << line.substr(0, static_cast<std::size_t>(terminal_width() - 1)) << std::flush;
  status_shown_ = !line.empty();
}

}  // namespace kozero::io
