// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// verify.hpp: the options of verify, which `kozero ranks` reads too.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/program/option_parser.hpp>

namespace kozero::commands {

/// `[--steps N] [--ranks 1,2,4] [--all] [--reference FILE] | [--replay STEP]`
struct VerifyOptions {
  std::int64_t steps = 3;
  std::int64_t replayed = 0;             ///< 0: none
  std::vector<std::int64_t> ranks = {};  ///< none: those that were started
  bool all = false;                      ///< back ends too
  std::string reference = {};            ///< the file of a trace; "": none
  void add_to(program::OptionParser& parser);
};

}  // namespace kozero::commands
