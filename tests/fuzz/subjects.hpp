// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// subjects.hpp: a valid file of every kind that KoZeRO reads, and the call that reads it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include <support/scratch_folder.hpp>

namespace kozero::tests {

struct Subject {
  std::string name;
  std::string path;            ///< the path that the reader opens
  std::string honest;          ///< the valid file's bytes
  std::function<void()> read;  ///< reads the whole file, as the program does
  int refusal = 3;             ///< the exit status of a refusal
};

/// Writes the files, all valid, into `folder`.
std::vector<Subject> all_subjects(const ScratchFolder& folder);

}  // namespace kozero::tests
