#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# cpu_nodes.sh: four nodes with two sockets of 32 cores each, one rank per socket.
#   sbatch inputs/slurm/cpu_nodes.sh runs/my_run my_deck.toml zero.stage=3 [KEY=VALUE ...]
# 300 s before the end of its time the run saves, and the job requeues itself until the run is finished. It does so too if
# a rank was lost, unless the job has saved no checkpoint since its start. All nodes must see runs/my_run.
#SBATCH --job-name=kozero --output=kozero-%j.log --open-mode=append
#SBATCH --nodes=4 --ntasks-per-node=2 --cpus-per-task=32 --time=12:00:00
#SBATCH --requeue                       # after a node failure, and for scontrol requeue below
#SBATCH --signal=USR1@300               # to the ranks (no "B:"); longer than one step and one save
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
