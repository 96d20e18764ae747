# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# requeue.sh: read by the job scripts of this folder; the job's first argument is the run's folder, the rest are those of
# `kozero train`. The run saves when the job's signal comes, a while before the end of its time, and the job requeues
# itself until the run is finished. It does so too if a rank is lost. In both cases it must have saved a checkpoint since its
# start; otherwise it would never end. All nodes must see the run's folder.
run=${1:?the first argument is the folder of the run: sbatch SCRIPT RUN DECK [KEY=VALUE ...]}
shift

newest_checkpoint() { for each in "$run"/step_?????????; do echo "$each"; done | tail -n 1; }

# train_and_requeue COMMAND...: ends the job with the status that the run reports, or requeues it.
train_and_requeue() {
  before=$(newest_checkpoint)
  mkdir -p "$(dirname "$run")"
  # The run writes its exit status there; srun's own may be another. A killed run writes none.
  KOZERO_STATUS_FILE=$(cd "$(dirname "$run")" && pwd)/.status.$SLURM_JOB_ID
  export KOZERO_STATUS_FILE
  trap 'rm -f "$KOZERO_STATUS_FILE"; exit 143' TERM  # the job was cancelled
  : >"$KOZERO_STATUS_FILE"
  launched=0
  "$@" run.dir="$run" checkpoint.resume=auto || launched=$?
  status=$(cat "$KOZERO_STATUS_FILE")
  rm -f "$KOZERO_STATUS_FILE"
  case $status in
    75 | 5 | '') ;;           # stopped by a signal; a rank was lost; all ranks were killed, or none started
    *) exit "$status" ;;
  esac
  if [ "$(newest_checkpoint)" = "$before" ]; then
    echo "requeue.sh: not requeued: no checkpoint was saved since the job's start (status ${status:-$launched})" >&2
    exit "${status:-$launched}"
  fi
  scontrol requeue "$SLURM_JOB_ID"
}
