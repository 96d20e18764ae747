// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// piped_program.hpp: another program, found on the PATH, that reads what this process writes.
//   PipedProgram gnuplot("gnuplot", {"-d", "-"}, output);    gnuplot.write("plot ...\n");    gnuplot.finish();
// Arguments are passed as they are: no shell reads them. The program has this process's standard error.
#pragma once
#include <sys/types.h>
#include <string>
#include <string_view>
#include <vector>

namespace kozero::io {

class PipedProgram {
 public:
  /// Starts it with `output` (a descriptor, which stays the caller's) as its standard output. Throws Error(deck) naming
  /// the program where it is not on the PATH, Error(internal) where it cannot be started.
  PipedProgram(const std::string& name, const std::vector<std::string>& arguments, int output);
  /// Ends its input and waits for it, where finish() was not reached.
  ~PipedProgram();
  PipedProgram(const PipedProgram&) = delete;
  PipedProgram& operator=(const PipedProgram&) = delete;

  /// To its standard input. Throws Error(internal) where it does not read any more.
  void write(std::string_view text);
  /// Ends its input and waits for its end. Throws Error(internal) with its status where that is not 0.
  void finish();

 private:
  /// What waitpid(2) says.
  int wait();

  std::string name_;
  pid_t process_ = -1;
  int input_ = -1;
};

}  // namespace kozero::io
