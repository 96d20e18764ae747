// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench.hpp: the benches of `kozero bench NAME`, each a function that measures beside something plain in the same run.
#pragma once
#include <kozero/commands/command.hpp>

namespace kozero::commands {

/// Named "bench kernels".
const std::vector<Command>& benches();

/// Saving a checkpoint beside plain writing of as many bytes, its stall beside a plain copy of them.
void bench_checkpoint(const dist::Environment& environment, const Arguments& arguments);

/// Every kernel of a step at a deck's shapes: time, operations or bytes a second,
/// share of the best product or of a stream.
void bench_kernels(const dist::Environment& environment, const Arguments& arguments);

/// Training steps of a deck: time by kernel as they run, and the share of it in which none does.
void bench_step(const dist::Environment& environment, const Arguments& arguments);

/// Every way to compute each kind of matrix product of a step; the fastest go to a file for run.tuning.
void bench_tune(const dist::Environment& environment, const Arguments& arguments);

/// Reduce-scatter and all-gather of each back end beside MPI's own collectives.
void bench_collectives(const dist::Environment& environment, const Arguments& arguments);

}  // namespace kozero::commands
