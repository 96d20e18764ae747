#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# cpu_node.sh: one node with two sockets of 32 cores, one rank per socket; otherwise as cpu_nodes.sh, which explains it.
#   sbatch inputs/slurm/cpu_node.sh runs/my_run my_deck.toml [KEY=VALUE ...]
#SBATCH --job-name=kozero --output=kozero-%j.log --open-mode=append
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=32 --time=12:00:00
#SBATCH --requeue
#SBATCH --signal=USR1@300
run=$1
shift
newest() { for each in "$run"/step_?????????; do echo "$each"; done | tail -n 1; }
before=$(newest)
srun --mpi=pmi2 --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
  "${KOZERO:-build/release/kozero}" train "$@" run.dir="$run" checkpoint.resume=auto
ended=$(tr -d '\n' <"$run/status.json" | sed 's/.*"state": *"\([a-z]*\)".*"exit_status": *\([a-z0-9]*\).*/\1 \2/')
case $ended in
  finished*) exit 0 ;;
  preempted*) ;;
  running* | 'failed 5') [ "$(newest)" != "$before" ] || exit 1 ;;  # ranks were killed; a rank was lost
  *) exit 1 ;;
esac
scontrol requeue "$SLURM_JOB_ID"
