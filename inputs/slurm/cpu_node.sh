#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# cpu_node.sh: one node with two sockets of 32 cores, one rank per socket; otherwise like cpu_nodes.sh.
#   sbatch inputs/slurm/cpu_node.sh runs/my_run my_deck.toml [KEY=VALUE ...]
#SBATCH --job-name=kozero --output=kozero-%j.log --open-mode=append
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=32 --time=12:00:00
#SBATCH --requeue
#SBATCH --signal=USR1@300
. "${KOZERO_INPUTS:-inputs}/slurm/requeue.sh"
train_and_requeue srun --mpi=pmi2 --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
  "${KOZERO:-build/release/kozero}" train "$@"
