// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// piped_program.hpp: a child process, found on the PATH, whose standard input this process writes.
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
  /// Starts the program. `output`: a descriptor for its standard output, which the caller still owns. Throws
  /// Error(deck) naming the program if it is not on the PATH, Error(internal) if it cannot be started.
  PipedProgram(const std::string& name, const std::vector<std::string>& arguments, int output);
  /// Unless finish() was called: closes the input and waits for the program.
  ~PipedProgram();
  PipedProgram(const PipedProgram&) = delete;
  PipedProgram& operator=(const PipedProgram&) = delete;

  /// Writes to the program's standard input. Throws Error(internal) if the program has closed it.
  void write(std::string_view text);
  /// Closes the input and waits for the program's end. Throws Error(internal) with a status other than 0.
  void finish();

 private:
  /// The status from waitpid(2).
  int wait();

  std::string name_;
  pid_t process_ = -1;
  int input_ = -1;
};

}  // namespace kozero::io
