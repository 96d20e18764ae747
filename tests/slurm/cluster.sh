#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# cluster.sh COMMAND [ARGUMENT...]: starts Slurm on four hosts that are namespaces of this machine (tests/cluster), runs
# the command beside them with SLURM_CONF set, and removes all daemons and files at its end, also after a failure.
# Needs root and what tests/cluster needs; `cmake/install_packages.sh slurm` installs munge and slurm-wlm.
#   tests/slurm/cluster.sh bash       # a shell in which sinfo, sbatch and srun work; host K is lost by $HOSTS_FOLDER/lose K
# The hosts host1 to host4 have two sockets of 64 cores and eight GPUs each, by slurm.conf only. Partition `main` is the
# default; jobs of `urgent` preempt its jobs by requeue. A host that does not answer for 5 s is down, and a requeued job
# waits 5 s: short times, so that tests are.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [[ -z ${HOSTS_FOLDER:-} ]]; then exec "$here/../cluster/network_namespaces.sh" 4 1 0 beside "$0" "$@"; fi

die() { echo "slurm: $*" >&2; exit 1; }

folder=$(mktemp -d)
export SLURM_CONF=$folder/slurm.conf
daemons=()  # each leads a process group
command=''

remove_all() {
  local each
  scancel --user="$(id -un)" 2>/dev/null || true
  [[ -z $command ]] || kill -KILL -- "-$command" 2>/dev/null || true
  for each in "${daemons[@]}"; do kill -KILL -- "-$each" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap remove_all EXIT
trap 'exit 130' INT TERM HUP

write_configuration() {
  local gpu
  mkdir "$folder/munge" "$folder/state" "$folder/log"
  chmod 755 "$folder"
  chmod 700 "$folder/munge"
  head -c 1024 /dev/urandom >"$folder/munge/key"
  chmod 400 "$folder/munge/key"
  for gpu in 0 1 2 3 4 5 6 7; do mknod "$folder/gpu$gpu" c 1 3; done  # as /dev/null
  echo "Name=gpu File=$folder/gpu[0-7]" >"$folder/gres.conf"
  echo 'CgroupPlugin=cgroup/v1' >"$folder/cgroup.conf"
  cat >"$SLURM_CONF" <<TEXT
ClusterName=kozero
SlurmctldHost=$(hostname)(10.77.0.254)
SlurmctldPort=17817
SlurmdPort=17818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
MailProg=/bin/true
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/log/slurmctld
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmdSpoolDir=$folder/spool-%n
SlurmdLogFile=$folder/log/slurmd-%n
SlurmdTimeout=5
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
NodeName=host[1-4] NodeAddr=10.77.0.[1-4] Sockets=2 CoresPerSocket=64 Gres=gpu:8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=2-0 PriorityTier=1 GraceTime=20 State=UP
PartitionName=urgent Nodes=ALL MaxTime=2-0 PriorityTier=10 PreemptMode=OFF State=UP
TEXT
}

# daemon COMMAND...: in the background, as the leader of a process group.
daemon() {
  setsid "$@" </dev/null >>"$folder/log/output" 2>&1 &
  daemons+=($!)
  disown
}

# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || { tail -n 5 "$folder"/log/*; die "not so in time: $*"; }
    sleep 0.1
  done
}

all_idle() { [[ $(sinfo --noheader --partition=main --states=idle --format=%D 2>/dev/null) == 4 ]]; }

start_daemons() {
  local host
  daemon munged --foreground --force --key-file="$folder/munge/key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
  until_true 10 test -S "$folder/munge.socket"
  daemon slurmctld -D -i
  for host in 1 2 3 4; do start_host "$host"; done
  until_true 30 all_idle
}

start_host() {
  daemon "$HOSTS_FOLDER/launcher" "10.77.0.$1" "export SLURM_CONF='$SLURM_CONF'; exec slurmd -D"
}

# Hydra reads these; in a job it starts ranks by srun.
unset HYDRA_LAUNCHER HYDRA_LAUNCHER_EXEC HYDRA_IFACE
write_configuration
start_daemons
setsid "$@" <&0 &
command=$!
status=0
wait "$command" || status=$?
exit "$status"
