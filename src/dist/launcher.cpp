// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <cstdlib>

#include <kozero/dist/launcher.hpp>

namespace kozero::dist {
namespace {

std::atomic<int> rank_of_mpi{-1};  // -1: MPI is not up

/// 0 where it is not set.
int number_in(const Variables& variables, const char* name) {
  const char* text = variables(name);
  return text == nullptr ? 0 : std::atoi(text);
}

std::string shown(const char* name, int value) { return std::string(name) + " = " + std::to_string(value); }

}  // namespace

int known_rank() {
  if (rank_of_mpi >= 0) return rank_of_mpi;
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

void set_rank(int rank) { rank_of_mpi = rank; }

std::string launcher_world_size(const Variables& variables) {
  constexpr std::array<const char*, 2> kOfMpi = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE"};
  bool has_own = false;
  for (const char* name : kOfMpi) {
    const int size = number_in(variables, name);
    if (size > 1) return shown(name, size);
    has_own = has_own || size > 0;
  }
  if (has_own) return "";
  if (const int rank = number_in(variables, "PMIX_RANK"); rank > 0) return shown("PMIX_RANK", rank);
  const bool in_step = variables("SLURM_STEP_ID") != nullptr && variables("SLURM_PROCID") != nullptr;
  const int tasks = in_step ? number_in(variables, "SLURM_STEP_NUM_TASKS") : 0;
  return tasks > 1 ? shown("SLURM_STEP_NUM_TASKS", tasks) : "";
}

int unused_slurm_tasks(const Variables& variables) {
  for (const char* name : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_STEP_ID"}) {
    if (variables(name) != nullptr) return 0;
  }
  const int tasks = number_in(variables, "SLURM_NTASKS");
  return tasks > 1 ? tasks : 0;
}

}  // namespace kozero::dist
