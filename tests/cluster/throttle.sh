#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# throttle.sh: limits what leaves a network interface of this machine, by the token bucket filter of tc.
set -euo pipefail

readonly kHandle=4b5a:  # of the filter that this script makes; it touches no other

usage() {
  cat <<'TEXT'
usage: throttle.sh apply IFACE RATE BURST LATENCY    limit, or change the limit
       throttle.sh status IFACE
       throttle.sh delete IFACE                      remove the limit

  IFACE    network interface, as in `ip link`; everything that leaves through it is limited, ssh too
  RATE     such as 1gbit or 100mbit
  BURST    bytes that may leave at once, such as 256kb; with few the link does not reach RATE
  LATENCY  longest time that a packet waits before it is dropped, such as 50ms

  sudo tests/cluster/throttle.sh apply eth0 1gbit 256kb 50ms
TEXT
}

die() { echo "throttle: $*" >&2; exit 1; }

# The root queueing discipline of the interface, as "KIND HANDLE"; nothing if there is none.
root_of() { tc qdisc show dev "$1" | awk '/ root /{ print $2, $3; exit }'; }

refuse_other() {
  local kind handle
  read -r kind handle <<<"$(root_of "$1")"
  case $kind in
    '' | noqueue | pfifo_fast | fq_codel | fq | mq) return 0 ;;  # the kernel's defaults
  esac
  [[ $handle == "$kHandle" ]] || die "$1 has a queueing discipline of its own, $kind $handle, which is left as it is"
}

case "${1:-} $#" in
  'apply 5' | 'status 2' | 'delete 2') ;;
  *) usage >&2; exit 2 ;;
esac
command -v tc >/dev/null || die "tc is missing: cmake/install_packages.sh cluster"
[[ -e /sys/class/net/$2 ]] || die "no interface $2; there are: $(cd /sys/class/net && echo *)"
if [[ $1 == status ]]; then
  tc -s qdisc show dev "$2"
  exit 0
fi
((EUID == 0)) || die "only root (CAP_NET_ADMIN) may limit an interface: sudo $0 $*"
refuse_other "$2"
if [[ $1 == apply ]]; then
  tc qdisc replace dev "$2" root handle $kHandle tbf rate "$3" burst "$4" latency "$5" ||
    die "tc refused rate $3 burst $4 latency $5 on $2; see --help of this script for examples"
  tc qdisc show dev "$2" root
elif [[ $(root_of "$2") == *" $kHandle" ]]; then
  tc qdisc del dev "$2" root
  echo "$2: not limited"
else
  echo "$2: was not limited"
fi
