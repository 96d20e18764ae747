#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# test_cluster.sh KOZERO CASE: network_namespaces.sh and throttle.sh of this folder. Exit status 0: all as expected, 77:
# the case needs root, namespaces, tc or MPICH's mpiexec, which are not here.
set -uo pipefail
kozero=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder" "$folder.bin"' EXIT
export TMPDIR=$folder  # of network_namespaces.sh

fail() { echo "FAILED: $*"; [[ ! -e $folder/out.txt ]] || cat "$folder/out.txt"; exit 1; }

"$here/network_namespaces.sh" check || exit

# expect STATUS TEXT COMMAND...: exit status and a regular expression in the output.
expect() {
  local want=$1 text=$2 status=0
  shift 2
  timeout 240 "$@" >"$folder/out.txt" 2>&1 || status=$?
  [[ $status == "$want" ]] || fail "exit status $status, not $want: $*"
  grep -Eq -- "$text" "$folder/out.txt" || fail "no \"$text\" from $*"
}

# What network_namespaces.sh makes: links, namespaces, processes and a folder.
left() {
  ip -o link show | grep -o 'kz[0-9]\+[^:@]*'
  ip netns list | grep -o '^kz[0-9]\+[^ ]*'
  find "$folder" -mindepth 1 -maxdepth 1 -type d
  pgrep -f "$folder/ready|$folder/launcher"
}
nothing_left() {
  local i
  for i in 1 2 3 4 5 6 7 8 9 10; do
    [[ -n $(left) ]] || return 0
    sleep 0.2
  done
  fail "left after $1: $(left | tr '\n' ' ')"
}

namespaces=$here/network_namespaces.sh

# Two hosts, over TCP: a sum and a gather have no wrong element, and the bytes crossed the links.
two_hosts() {
  expect 0 'link: [0-9.]+ of 200 Mbit/s' "$namespaces" 2 1 200 "$kozero" bench collectives --size 256KiB --runs 2 \
    --backend mpi,ring
  [[ $(grep -Ec '^ +262144 .* 0 +[0-9.]+ +[0-9.]+$' "$folder/out.txt") == 8 ]] || fail 'not 8 rows without a wrong element'
  grep -Eq '^host 2: [1-9][0-9.]* MiB sent, [1-9]' "$folder/out.txt" || fail 'no bytes on the links'
  nothing_left 'a run'
}

# Everything is removed, and the status is the failure's.
failures() {
  expect 3 '^host 1: ' "$namespaces" 2 1 0 bash -c 'exit 3'
  nothing_left 'a program that fails'

  # A program that sends nothing: the bytes of the rate's measurement (25 MB per second) are not counted.
  expect 0 '^host 1: 0\.[0-9]+ MiB sent, 0\.[0-9]+ MiB received' "$namespaces" 2 1 200 true
  nothing_left 'a program that sends nothing'

  # The 3rd call of tc fails, when one host is up and the other half made.
  mkdir "$folder.bin"
  cat >"$folder.bin/tc" <<TEXT
#!/bin/sh
echo call >>"$folder.bin/calls"
[ "\$(wc -l <"$folder.bin/calls")" -ge 3 ] && { echo "tc: planted" >&2; exit 1; }
exec $(command -v tc) "\$@"
TEXT
  chmod +x "$folder.bin/tc"
  expect 1 'tc: planted' env PATH="$folder.bin:$PATH" "$namespaces" 2 1 100 true
  rm -rf "$folder.bin"
  nothing_left 'a host that cannot be made'

  "$namespaces" 2 1 0 sleep 60 >"$folder/out.txt" 2>&1 &
  local script=$! i
  for ((i = 0; i < 100; ++i)); do
    pgrep -f "$folder/.*/launcher" >/dev/null && break
    sleep 0.1
  done
  expect 1 'the hosts of another run are up \(kz[0-9]+\), with the same addresses' "$namespaces" 2 1 0 true
  kill -TERM $script
  wait $script
  nothing_left 'SIGTERM'

  # The link's rate is measured before the program starts.
  expect 1 'the link has [0-9.e+]+ Mbit/s, not 1000000; accepted are 85 to 105 %' "$namespaces" 2 1 1000000 touch started
  [[ ! -e started ]] || fail 'the program was started over a link without its rate'
  nothing_left 'a link without its rate'
}

# A link of the test's own is limited, reported and freed.
throttle() {
  local throttle=$here/throttle.sh
  ip link add kzlimit0 type veth peer name kzlimit1
  trap 'ip link del kzlimit0; rm -rf "$folder"' EXIT
  expect 2 '^usage: ' "$throttle" apply kzlimit0 1gbit
  expect 1 'no interface kznone; there are: ' "$throttle" status kznone
  expect 1 '^throttle: only root .* may limit an interface: sudo .*apply kzlimit0 1gbit 256kb 50ms$' \
    setpriv --reuid 65534 --clear-groups "$throttle" apply kzlimit0 1gbit 256kb 50ms
  expect 0 'tbf 4b5a: .*rate 1Gbit burst 26[0-9]+b lat 50ms' "$throttle" apply kzlimit0 1gbit 256kb 50ms
  expect 0 'rate 100Mbit burst (64Kb|6[0-9]+b) lat 20ms' "$throttle" apply kzlimit0 100mbit 64kb 20ms
  expect 0 'rate 100Mbit burst (64Kb|6[0-9]+b) lat 20ms' "$throttle" status kzlimit0
  expect 0 'kzlimit0: not limited' "$throttle" delete kzlimit0
  expect 0 'kzlimit0: was not limited' "$throttle" delete kzlimit0
  tc qdisc add dev kzlimit0 root handle 7: tbf rate 1mbit burst 4kb latency 50ms
  expect 1 'kzlimit0 has a queueing discipline of its own, tbf 7:' "$throttle" apply kzlimit0 1gbit 256kb 50ms
  expect 1 'which is left as it is' "$throttle" delete kzlimit0
  tc qdisc show dev kzlimit0 | grep -q 'tbf 7: root.*rate 1Mbit' || fail 'it was not left as it is'
}

cd "$folder" && "$2"
