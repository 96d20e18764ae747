// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// print_logits.cpp: print_logits HF_FOLDER RUN TOKEN...: the logits of an imported run after the last token.
#include <cstdio>
#include <iostream>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/distributed/environment.hpp>

#include "imported_model.hpp"

int main(int argc, char** argv) {
  const kozero::distributed::Environment environment(&argc, &argv);
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(1).set_disable_warnings(true));
  try {
    kozero::require(argc > 3, "usage: print_logits HF_FOLDER RUN TOKEN...");
    std::vector<kozero::Token> tokens;
    for (int i = 3; i < argc; ++i) tokens.push_back(std::stoi(argv[i]));
    const auto config = kozero::huggingface::read_config(std::string(argv[1]) + "/config.json");
    kozero::tests::ImportedModel model(config, std::string(argv[2]) + "/weights.h5");
    for (const float logit : model.logits(tokens)) std::printf("%.9g\n", static_cast<double>(logit));
  } catch (const kozero::Error& error) {
    std::cerr << error.what() << std::endl;
    return error.exit_status();
  }
  return 0;
}
