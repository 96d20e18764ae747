#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# crossover.sh [KOZERO]: the bandwidth below which a step of stage 2 takes twice as long as on a fast network, on a
# simulated network (comm.throttle_gbit) and on links that tc limits (network_namespaces.sh). Two hosts of one rank and
# one thread over TCP, without a limit and at three rates, each of those once simulated and once by tc. Prints the steps,
# the two crossovers and their difference. Exit status 0: they agree within 20 %.
# STEPS: default 12; RATES: in Mbit/s, from slow to fast; STAGE; OVERLAP: of zero.overlap, default true. Needs a machine
# without other programs: the links of busy hosts do not reach their rates.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kozero=$(realpath "${1:-$here/../../build/release/kozero}")
steps=${STEPS:-12} stage=${STAGE:-2}
read -r -a rates <<<"${RATES:-100 300 1000}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
deck=(train "$here/../../inputs/stages.toml" "run.steps=$steps" run.threads=1
  "data.text=$here/../../LICENSE" model.layers=6 train.global_batch=4 train.micro_batch=2 train.eval_every=0 zero.bucket_mib=0
  comm.backend=mpi zero.overlap=${OVERLAP:-true} log.every=1000)

# run_case LINK NAME [KEY...]: a run on two hosts whose links have LINK Mbit/s.
run_case() {
  local link=$1 name=$2
  shift 2
  "$here/network_namespaces.sh" 2 1 "$link" "$kozero" "${deck[@]}" zero.stage="$stage" run.dir="$folder/$name" "$@" \
    >"$folder/$name.txt" 2>&1 || { cat "$folder/$name.txt"; exit 1; }
}

run_case 0 none
for rate in "${rates[@]}"; do
  run_case 0 "simulated-$rate" "comm.throttle_gbit=$(awk "BEGIN { print $rate / 1000 }")"
  run_case "$rate" "tc-$rate"
done
python3 - "$folder" "${rates[@]}" <<'PYTHON'
import json, math, pathlib, statistics, sys
folder, rates, found, longer = pathlib.Path(sys.argv[1]), sys.argv[2:], {}, 2.0


def step_ms(name):
    rows = (folder / name / "metrics.jsonl").read_text().splitlines()
    return 1e3 * statistics.median(json.loads(row)["step_s"] for row in rows[1:])


free = step_ms("none")
print(f"no limit: {free:.1f} ms per step")
for kind in ("simulated", "tc"):
    steps = [step_ms(f"{kind}-{rate}") for rate in rates]
    print(kind + ": " + ", ".join(f"{rate} Mbit/s {step:.1f} ms" for rate, step in zip(rates, steps)))
    for i in range(1, len(rates)):
        slow, fast, before, after = float(rates[i - 1]), float(rates[i]), steps[i - 1] / free, steps[i] / free
        if before > longer >= after:
            found[kind] = slow * (fast / slow) ** (math.log(before / longer) / math.log(before / after))
    if kind not in found:
        sys.exit(f"{kind}: the rates do not enclose a step of {longer} times {free:.1f} ms; give others in RATES")
difference = found["tc"] / found["simulated"] - 1
print(f"crossover: simulated {found['simulated']:.0f} Mbit/s, tc {found['tc']:.0f} Mbit/s, {100 * difference:+.0f} %")
sys.exit(abs(difference) > 0.2)
PYTHON
