#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# crossover.sh [KOZERO]: the bandwidth below which a step of stage 2 takes twice as long as on a fast network, on a
# simulated network (comm.throttle_gbit) and on links that tc limits (network_namespaces.sh). Two hosts of one rank and
# one thread over TCP, without a limit and at four rates, each of those once simulated and once by tc. Prints the steps,
# the two crossovers and their difference, and at the lowest rate the time of the all-gathers of a step beside that of a
# program that sends as many bytes both ways through one TCP connection. Exit status 0: the crossovers agree within 20 %
# and the all-gathers take at most 1.2 times the time of that program.
# STEPS: default 12; RATES: in Mbit/s, from slow to fast (default: around the rate at which sending all bytes of a step
# takes as long as the step without a limit); STAGE; OVERLAP: of zero.overlap, default true. Needs a machine without other
# programs: the links of busy hosts do not reach their rates.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kozero=$(realpath "${1:-$here/../../build/release/kozero}")
steps=${STEPS:-12} stage=${STAGE:-2}
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

# of_steps NAME EXPRESSION: its median over the rows of metrics.jsonl but the first.
of_steps() {
  python3 -c 'import json, statistics, sys
rows = [json.loads(row) for row in open(sys.argv[1])][1:]
print(statistics.median(eval(sys.argv[2]) for row in rows))' "$folder/$1/metrics.jsonl" "$2"
}

# two_way_ms LINK BYTES: the median of five exchanges in which each host sends the other so many bytes.
two_way_ms() {
  cat >"$folder/two_way.py" <<'PYTHON'
import os, socket, statistics, sys, threading, time

size, rank = int(sys.argv[1]), int(os.environ["PMI_RANK"])
if rank == 0:
    server = socket.create_server(("10.77.0.1", 7778))
    peer, _ = server.accept()
else:
    while True:
        try:
            peer = socket.create_connection(("10.77.0.1", 7778))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
data, buffer, times = bytes(size), bytearray(1 << 20), []


def receive(count):
    while count > 0:
        count -= peer.recv_into(buffer, min(count, len(buffer)))


for _ in range(5):
    receive(1) if rank == 0 else peer.sendall(b"x")  # both begin
    peer.sendall(b"x") if rank == 0 else receive(1)
    begin = time.monotonic()
    sender = threading.Thread(target=peer.sendall, args=(data,))
    sender.start()
    receive(size)
    sender.join()
    times.append(1e3 * (time.monotonic() - begin))
if rank == 0:
    print(f"two ways: {statistics.median(times):.1f} ms")
PYTHON
  "$here/network_namespaces.sh" 2 1 "$1" python3 "$folder/two_way.py" "$2" 2>"$folder/two_way.txt" |
    sed -n 's/^two ways: \(.*\) ms$/\1/p' || { cat "$folder/two_way.txt" >&2; exit 1; }
}

run_case 0 none
bytes=$(of_steps none 'row["bytes_sent"]["all_gather"] + row["bytes_sent"]["reduce_scatter"]')
read -r -a rates <<<"${RATES:-$(of_steps none 'row["step_s"]' | awk -v bytes="$bytes" '
  { rate = 8e-6 * bytes / $1; for (part = 0.25; part <= 2; part *= 2) printf "%d ", 10 * int(part * rate / 10 + 0.5) }')}"
for rate in "${rates[@]}"; do
  run_case 0 "simulated-$rate" "comm.throttle_gbit=$(awk "BEGIN { print $rate / 1000 }")"
  run_case "$rate" "tc-$rate"
done
two_way=$(two_way_ms "${rates[0]}" "$(of_steps none 'row["bytes_sent"]["all_gather"]' | cut -d . -f 1)")
python3 - "$folder" "$two_way" "${rates[@]}" <<'PYTHON'
import json, math, pathlib, statistics, sys
folder, two_way, rates, found, longer = pathlib.Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:], {}, 2.0


def median_ms(name, seconds):
    rows = (folder / name / "metrics.jsonl").read_text().splitlines()
    return 1e3 * statistics.median(seconds(json.loads(row)) for row in rows[1:])


def step_ms(name):
    return median_ms(name, lambda row: row["step_s"])


free = step_ms("none")
print(f"no limit: {free:.1f} ms per step")
for kind in ("simulated", "tc"):
    steps = [step_ms(f"{kind}-{rate}") for rate in rates]
    print(kind + ": " + ", ".join(f"{rate} Mbit/s {step:.1f} ms" for rate, step in zip(rates, steps)))
    for i in range(1, len(rates)):
        slow, fast, before, after = float(rates[i - 1]), float(rates[i]), steps[i - 1] / free, steps[i] / free
        if before > longer >= after:
            found[kind] = slow * (fast / slow) ** (math.log(before / longer) / math.log(before / after))
gathers = median_ms(f"tc-{rates[0]}", lambda row: row["seconds"]["all_gather"])
ratio = gathers / two_way
both = f"as many bytes both ways {two_way:.1f} ms"
print(f"all-gathers at {rates[0]} Mbit/s: {gathers:.1f} ms; {both}; {ratio:.2f} times")
for kind in ("simulated", "tc"):
    if kind not in found:
        sys.exit(f"{kind}: the rates do not enclose a step of {longer} times {free:.1f} ms; give others in RATES")
difference = found["tc"] / found["simulated"] - 1
print(f"crossover: simulated {found['simulated']:.0f} Mbit/s, tc {found['tc']:.0f} Mbit/s, {100 * difference:+.0f} %")
sys.exit(abs(difference) > 0.2 or ratio > 1.2)
PYTHON
