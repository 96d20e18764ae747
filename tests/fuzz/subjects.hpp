// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// subjects.hpp: an honest file of every kind that KoZeRO reads, and the call that reads it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include <support/scratch_folder.hpp>

namespace kozero::tests {

struct Subject {
  std::string name;
  std::string path;            ///< where the reader looks for the file
  std::string honest;          ///< its bytes
  std::function<void()> read;  ///< all of it, as the program does
  int refusal = 3;             ///< the exit status of a refusal
};

/// The files lie in `folder`, each whole at first.
std::vector<Subject> all_subjects(const ScratchFolder& folder);

}  // namespace kozero::tests
