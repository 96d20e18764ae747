#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# gpu_nodes.sh: four nodes with eight GPUs each, one rank per GPU; otherwise like cpu_nodes.sh.
#   sbatch inputs/slurm/gpu_nodes.sh runs/llama8b inputs/llama3_8b.toml [KEY=VALUE ...]
# comm.exact keeps the bits if the number of ranks changes; zero.shard_group=node gathers weights within a node, so that
# only gradients cross the network. If NCCL chooses a wrong network: export NCCL_SOCKET_IFNAME=ib0, as your site names it.
#SBATCH --job-name=kozero --output=kozero-%j.log --open-mode=append
#SBATCH --nodes=4 --ntasks-per-node=8 --gpus-per-node=8 --cpus-per-task=12 --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=USR1@300
. "${KOZERO_INPUTS:-inputs}/slurm/requeue.sh"
train_and_requeue srun --mpi=pmi2 --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
  "${KOZERO:-build/cuda/kozero-cuda}" train run.device=cuda zero.shard_group=node comm.exact=true "$@"
