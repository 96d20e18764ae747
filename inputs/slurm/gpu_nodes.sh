#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# gpu_nodes.sh: four nodes with eight GPUs each, one rank per GPU; otherwise as cpu_nodes.sh, which explains it.
#   sbatch inputs/slurm/gpu_nodes.sh runs/llama8b inputs/llama3_8b.toml [KEY=VALUE ...]
# Sites that count GPUs by --gres write --gres=gpu:8 in place of --gpus-per-node=8. comm.exact keeps the bits if the number
# of ranks changes; zero.shard_group=node gathers weights within a node, so that only gradients cross the network.
#SBATCH --job-name=kozero --output=kozero-%j.log --open-mode=append
#SBATCH --nodes=4 --ntasks-per-node=8 --gpus-per-node=8 --cpus-per-task=12 --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=USR1@300
export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-ib0}"   # the network between nodes, as your site names it
run=$1
shift
newest() { for each in "$run"/step_?????????; do echo "$each"; done | tail -n 1; }
before=$(newest)
srun --mpi=pmi2 --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
  "${KOZERO:-build/cuda/kozero-cuda}" train run.device=cuda zero.shard_group=node comm.exact=true "$@" run.dir="$run" \
  checkpoint.resume=auto
ended=$(tr -d '\n' <"$run/status.json" | sed 's/.*"state": *"\([a-z]*\)".*"exit_status": *\([a-z0-9]*\).*/\1 \2/')
case $ended in
  finished*) exit 0 ;;
  preempted*) ;;
  running* | 'failed 5') [ "$(newest)" != "$before" ] || exit 1 ;;  # ranks were killed; a rank was lost
  *) exit 1 ;;
esac
scontrol requeue "$SLURM_JOB_ID"
