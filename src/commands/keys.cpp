// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "deck_arguments.hpp"

namespace kozero::commands {

void keys(const dist::Environment& environment, const Arguments& arguments) {
  CLI::App app("", "keys");
  parse(app, arguments);
  if (environment.rank() == 0) std::cout << io::deck_reference();
}

}  // namespace kozero::commands
