#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# cpu_nodes.sh: four nodes with two sockets of 32 cores each, one rank per socket.
#   sbatch inputs/slurm/cpu_nodes.sh runs/my_run my_deck.toml zero.stage=3 [KEY=VALUE ...]
# The job requeues itself until the run is finished (requeue.sh).
#SBATCH --job-name=kozero --output=kozero-%j.log --open-mode=append
#SBATCH --nodes=4 --ntasks-per-node=2 --cpus-per-task=32 --time=12:00:00
#SBATCH --requeue                       # after a node failure, and for scontrol requeue
#SBATCH --signal=USR1@300               # to the ranks (no "B:"); longer than one step and one save
. "${KOZERO_INPUTS:-inputs}/slurm/requeue.sh"
train_and_requeue srun --mpi=pmi2 --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
  "${KOZERO:-build/release/kozero}" train "$@"
