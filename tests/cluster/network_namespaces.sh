#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# network_namespaces.sh: runs a program under MPICH's mpiexec on several hosts that are namespaces of this machine.
# Each host has a network, host name, process numbers, System V shared memory and /dev/shm of its own, and one link,
# limited in both directions, to a bridge that joins the hosts. Needs root, Linux, iproute2, util-linux and MPICH.
# Measures the rate of a limited link first. Prints the bytes that left and reached each host while the program ran, and
# removes everything at its end, also after a failure. One run at a time: all runs have the same addresses.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: network_namespaces.sh HOSTS RANKS RATE COMMAND [ARGUMENT...]
       network_namespaces.sh check     prints what is missing here, and exits with 77 then

  HOSTS    number of hosts, 2 to 200
  RANKS    ranks on each host
  RATE     of a host's link, in Mbit/s; 0: not limited
  COMMAND  a program and its arguments; `probe` instead sends for 4 s from host 1 to host 2 and prints the rate;
           `beside PROGRAM ARGUMENT...` runs a program on this machine, which has the bridge, while the hosts are up. Its
           environment names the folder HOSTS_FOLDER and the settings with which mpiexec starts ranks on the hosts:
             $HOSTS_FOLDER/launcher 10.77.0.2 'COMMAND'    as ssh does; a lost host does not answer
             $HOSTS_FOLDER/lose 2                          kills all that runs on host 2, and cuts its link
             $HOSTS_FOLDER/cut 2                           cuts its link; what runs there goes on
             $HOSTS_FOLDER/return 2                        host 2 is up again, and its link

  BURST=BYTES   that a link passes at once (default: 128 us at its rate, at least 40000)
  QUEUE=BYTES   that wait for a link before packets are dropped (default: 20 ms at its rate, at least 500000)
  LATENCY=TIME  added to each packet, such as 20us (default: none)
  LOST_HOST_S=N seconds until a lost host is known not to answer (default: 0)
  CHECK=no      starts the program even if the link does not have its rate

  network_namespaces.sh 2 2 1000 build/release/kozero bench collectives --size 16MiB
  network_namespaces.sh 4 1 100 build/release/kozero train inputs/stages.toml zero.stage=3 comm.backend=mpi run.steps=5
TEXT
}

die() { echo "network_namespaces: $*" >&2; exit 1; }

# Prints what this machine lacks; nothing if hosts can be made.
missing() {
  local program
  if ((EUID != 0)); then echo "root, such as by sudo"; return; fi
  for program in ip tc unshare nsenter pgrep mpiexec.hydra python3; do
    command -v "$program" >/dev/null || { echo "$program: cmake/install_packages.sh cluster"; return; }
  done
  unshare --net --mount --uts --ipc --pid --fork true 2>/dev/null || { echo "namespaces, which this machine refuses"; return; }
  ip link add "kzprobe$$" type veth peer name "kzpeer$$" 2>/dev/null || { echo "veth, which this kernel has not"; return; }
  ip link del "kzprobe$$"
}

lacks=$(missing)
if [[ ${1:-} == check ]]; then
  [[ -z $lacks ]] || { echo "skipped: needs $lacks"; exit 77; }
  exit 0
fi
if (($# < 4)); then usage >&2; exit 2; fi
readonly kHosts=$1 kRanks=$2 kRate=$3
shift 3
[[ -z $lacks ]] || die "needs $lacks"
((kHosts >= 2 && kHosts <= 200)) || die "HOSTS must be 2 to 200"

unset UCX_NET_DEVICES  # which CTest sets for tests on one host

readonly kName=kz$$  # begins all names, so that two runs do not meet
kFolder=$(mktemp -d)
readonly kFolder
launched=''  # mpiexec
declare -a holders=()  # processes that keep the hosts' namespaces alive

remove_all() {
  local host
  [[ -z $launched ]] || kill "$launched" 2>/dev/null || true
  for host in "${holders[@]}"; do kill -KILL "$host" 2>/dev/null || true; done
  for ((host = 1; host <= kHosts; ++host)); do
    ip link del "$kName-$host" 2>/dev/null || true
    ip netns del "$kName-$host" 2>/dev/null || true
  done
  ip link del "$kName" 2>/dev/null || true
  rm -rf "$kFolder"
}
trap remove_all EXIT
trap 'exit 130' INT TERM HUP

# Limits the traffic out of device $2 in the network namespace $1 ('' is this one).
limit() {
  ((kRate > 0)) || return 0
  local burst=${BURST:-$((kRate * 16 > 40000 ? kRate * 16 : 40000))}
  local queue=${QUEUE:-$((kRate * 2500 > 500000 ? kRate * 2500 : 500000))}
  # A packet larger than the burst would be split, which costs time.
  ip ${1:+-n "$1"} link set "$2" gso_max_size $((burst > 65536 ? 65536 : burst / 2))
  tc ${1:+-n "$1"} qdisc add dev "$2" root handle 1: tbf rate "${kRate}mbit" burst "$burst" limit "$queue"
  if [[ -n ${LATENCY:-} ]]; then
    tc ${1:+-n "$1"} qdisc add dev "$2" parent 1: handle 2: netem delay "$LATENCY" limit 100000
  fi
}

# A bridge, the hosts' links to it, and a process in each host's namespaces.
make_hosts() {
  local host space
  echo "127.0.0.1 localhost" >"$kFolder/hosts"
  for ((host = 1; host <= kHosts; ++host)); do echo "10.77.0.$host host$host" >>"$kFolder/hosts"; done
  ip link add "$kName" type bridge
  ip link set "$kName" up
  for ((host = 1; host <= kHosts; ++host)); do
    space=$kName-$host
    ip netns add "$space"
    ip link add "$space" type veth peer name eth0 netns "$space"
    ip link set "$space" master "$kName" up
    ip -n "$space" addr add "10.77.0.$host/24" dev eth0
    ip -n "$space" link set eth0 up
    ip -n "$space" link set lo up
    limit "$space" eth0
    limit '' "$space"
    # `ip netns exec` gives the host a /sys with its own devices.
    ip netns exec "$space" unshare --mount --uts --ipc --pid --fork --mount-proc bash -c "
      hostname host$host
      mount -t tmpfs -o size=90% shm /dev/shm
      mount --bind '$kFolder/hosts' /etc/hosts
      touch '$kFolder/ready-$host'
      exec sleep infinity" &
    holders+=($!)
    disown
    until [[ -e $kFolder/ready-$host ]]; do
      kill -0 $! 2>/dev/null || die "host $host cannot be made"
      sleep 0.05
    done
    pgrep -P $! >"$kFolder/10.77.0.$host"
    holders+=("$(cat "$kFolder/10.77.0.$host")")
  done
}

# on_host HOST COMMAND...: runs the command in all namespaces of a host, in this folder.
on_host() {
  local holder
  holder=$(cat "$kFolder/10.77.0.$1")
  shift
  nsenter -t "$holder" --mount --uts --ipc --net --pid --wd="$PWD" "$@"
}

# The script that mpiexec calls instead of ssh: [OPTION...] ADDRESS COMMAND...
write_launcher() {
  cat >"$kFolder/launcher" <<TEXT
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
[[ ! -e "$kFolder/lost-\$1" ]] || { sleep ${LOST_HOST_S:-0}; echo "launcher: \$1 does not answer" >&2; exit 255; }
holder=\$(cat "$kFolder/\$1")
shift
exec nsenter -t "\$holder" --mount --uts --ipc --net --pid --wd="$PWD" bash -c "\$*"
TEXT
  chmod +x "$kFolder/launcher"
}

# The programs `lose`, `cut` and `return`. Only the process that keeps the namespaces outlives the loss of its host.
write_failures() {
  cat >"$kFolder/lose" <<TEXT
#!/usr/bin/env bash
touch "$kFolder/lost-10.77.0.\$1"
ip link set "$kName-\$1" down
nsenter -t "\$(cat "$kFolder/10.77.0.\$1")" --pid --mount bash -c 'kill -KILL -1' || true
TEXT
  cat >"$kFolder/cut" <<TEXT
#!/usr/bin/env bash
ip link set "$kName-\$1" down
TEXT
  cat >"$kFolder/return" <<TEXT
#!/usr/bin/env bash
ip link set "$kName-\$1" up
rm -f "$kFolder/lost-10.77.0.\$1"
TEXT
  chmod +x "$kFolder/lose" "$kFolder/cut" "$kFolder/return"
}

# run_beside COMMAND...
run_beside() {
  ip addr add 10.77.0.254/24 dev "$kName"
  HOSTS_FOLDER=$kFolder HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=$kFolder/launcher HYDRA_IFACE=$kName "$@" <&0 &
  launched=$!
  wait $launched
}

# mpiexec runs on this machine, which has the bridge. Its ranks reach it at the bridge's address.
run_ranks() {
  local host list=''
  for ((host = 1; host <= kHosts; ++host)); do list+=${list:+,}10.77.0.$host:$kRanks; done
  ip addr add 10.77.0.254/24 dev "$kName"
  mpiexec.hydra -launcher ssh -launcher-exec "$kFolder/launcher" -iface "$kName" -localhost 10.77.0.254 -hosts "$list" \
    -n $((kHosts * kRanks)) "$@" <&0 &
  launched=$!  # in the background, so that a signal ends this script at once
  wait $launched
}

# Prints "HOST SENT RECEIVED", in bytes of frames.
bytes_of_links() {
  local host
  for ((host = 1; host <= kHosts; ++host)); do
    echo "$host $(cat "/sys/class/net/$kName-$host/statistics/rx_bytes") \
$(cat "/sys/class/net/$kName-$host/statistics/tx_bytes")"
  done
}

# measured_rate SECONDS: the rate of a link in Mbit/s, as received. Host 1 sends so long, host 2 counts, without the
# first quarter, in which the burst passes (two python3 programs).
measured_rate() {
  on_host 2 python3 -c '
import socket, sys, time
server = socket.create_server(("", 7777))
server.settimeout(20)
peer, _ = server.accept()
buffer, total, begin = bytearray(1 << 20), 0, time.monotonic() + float(sys.argv[1]) / 4
while n := peer.recv_into(buffer):
    now = time.monotonic()
    if now < begin: start = now
    else: total += n
rate = total * 8e-6 / (now - start)
print(round(rate) if rate > 100 else round(rate, 2))' "$1" &
  local counter=$!
  on_host 1 python3 -c '
import socket, sys, time
for attempt in range(200):
    try: peer = socket.create_connection(("10.77.0.2", 7777))
    except ConnectionRefusedError: time.sleep(0.05)
    else: break
data, end = bytes(1 << 14), time.monotonic() + float(sys.argv[1])
while time.monotonic() < end: peer.sendall(data)' "$1"
  wait "$counter"
}

# Frames carry 94 % payload; a slow machine does not reach a high rate.
check_rate() {
  ((kRate > 0)) && [[ ${CHECK:-yes} != no ]] || return 0
  local rate
  rate=$(measured_rate 1)
  awk -v is="$rate" -v must="$kRate" 'BEGIN { exit !(is >= 0.85 * must && is <= 1.05 * must) }' ||
    die "the link has $rate Mbit/s, not $kRate; accepted are 85 to 105 %; take another RATE or BURST, or CHECK=no"
  echo "link: $rate of $kRate Mbit/s" >&2
}

other=$(ip -o link show type bridge | grep -o 'kz[0-9]\+' | head -n 1 || true)
[[ -z $other ]] || die "the hosts of another run are up ($other), with the same addresses: wait for its end, or remove \
what it left: ip link del $other"
make_hosts
write_launcher
status=0
if [[ $1 == probe ]]; then
  echo "received $(measured_rate 4) Mbit/s"
  on_host 1 ping -c 20 -i 0.05 -q 10.77.0.2 2>/dev/null | tail -n 1 || true
elif [[ $1 == beside ]]; then
  write_failures
  check_rate
  bytes_of_links >"$kFolder/before"
  run_beside "${@:2}" || status=$?
else
  check_rate
  bytes_of_links >"$kFolder/before"
  run_ranks "$@" || status=$?
fi
bytes_of_links | awk -v before="$kFolder/before" '
  BEGIN {
    while ((getline line <before) > 0) { split(line, was, " "); sent[was[1]] = was[2]; received[was[1]] = was[3] }
  }
  function mib(bytes) { return bytes / 2 ^ 20 }
  { printf "host %d: %.3f MiB sent, %.3f MiB received\n", $1, mib($2 - sent[$1]), mib($3 - received[$1]) }
' >&2
exit "$status"
