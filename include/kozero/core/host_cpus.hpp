// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// host_cpus.hpp: the CPUs that this process may run on, and which of them are one core.
#pragma once
#include <string>
#include <vector>

namespace kozero {

/// CPU numbers, ascending.
using CpuSet = std::vector<int>;

/// What the launcher and the control group left to this process. Where OpenMP has bound the calling thread to a place
/// since (OMP_PROC_BIND=true binds the first thread to the first place, in every rank alike), all of its places.
CpuSet allowed_cpus();

/// The same CPUs, those of one core together, in the order of their first.
std::vector<CpuSet> cores_of(const CpuSet& cpus);

/// "0-3,6".
std::string as_ranges(const CpuSet& cpus);

/// "AMD EPYC 9B14 96-Core Processor"; "CPU" where the system does not tell.
std::string cpu_name();

/// Whether the calling thread now runs on these CPUs alone.
bool bind_this_thread(const CpuSet& cpus);

}  // namespace kozero
