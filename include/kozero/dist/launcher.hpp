// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// launcher.hpp: what the environment of this process says of the job that it was started in.
#pragma once
#include <functional>
#include <string>

namespace kozero::dist {

/// This process's rank: MPI's, or before MPI is up the one that the launcher's environment names, else 0. For messages
/// that may be due before MPI is up, or by a thread that must not call it.
int known_rank();
/// MPI's rank, which known_rank() returns from now on.
void set_rank(int rank);

/// The value of an environment variable, or nullptr, as std::getenv.
using Variables = std::function<const char*(const char* name)>;

/// Which variable says that this process is one of several, as "PMI_SIZE = 4"; "" where none does. Slurm's count is
/// that of the step which this process is a task of: SLURM_NTASKS alone, as in an salloc shell, says nothing of it. An
/// MPI launcher's own variable counts more than Slurm's, whose step may hold that launcher.
std::string launcher_world_size(const Variables& variables);

/// SLURM_NTASKS, where no launcher started this process; 0 where one did, or where there is one task.
int unused_slurm_tasks(const Variables& variables);

}  // namespace kozero::dist
