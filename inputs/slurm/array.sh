#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# array.sh: one case of a sweep per task; --array counts the cases that `kozero sweep MATRIX --dry-run` lists.
#   sbatch --array=1-8 inputs/slurm/array.sh inputs/sweep_stages.toml [KEY=VALUE ...]
# A task whose case has ended runs nothing, so the array can be submitted again.
#SBATCH --job-name=sweep --output=sweep-%A_%a.log
#SBATCH --array=1-8
#SBATCH --ntasks=2 --time=1:00:00       # as many tasks as the largest case has ranks
exec "${KOZERO:-build/release/kozero}" sweep "$@" --launcher 'srun --mpi=pmi2 -n {ranks}' --case "$SLURM_ARRAY_TASK_ID"
