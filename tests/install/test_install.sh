#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
# test_install.sh BUILD MPIEXEC...: installs the build and moves the installed tree. There it trains the quick start
# and, on two ranks, a small deck, and builds and runs the example, which must train, save a checkpoint that the program reads, and refuse a bad or
# missing deck.
set -euo pipefail

build=$1
shift
mpiexec=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_install: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; fail "cmake --install"; }
mv "$work/first" "$work/moved"
prefix=$work/moved
grep -rlF -e "$build" -e "$(cd "$(dirname "$0")/../.." && pwd)" -e "$work/first" --include='*.cmake' "$prefix" &&
  fail "the package names the folder it was built or installed in"
cd "$work"
"$prefix/bin/kozero" --version >version
"$prefix/bin/kozero" train "$prefix/share/kozero/inputs/quickstart.toml" run.steps=1 run.dir=quickstart >out 2>&1 &&
  grep -q '^step 1/1 ' out || { cat out; fail "the quick start of the installed tree"; }
deck=$prefix/share/kozero/inputs/demos/synthetic.toml
"${mpiexec[@]}" -n 2 "$prefix/bin/kozero" train "$deck" run.steps=20 log.every=1 run.dir=two_ranks >out 2>&1 &&
  awk '/^step / {last = $4; if (first == "") first = $4; ++count} END {exit !(count == 20 && last < first)}' out ||
  { cat out; fail "20 steps of the moved program on two ranks"; }
# Neither tree needs the builder's cache, and the installed program starts for another user.
cache=${XDG_CACHE_HOME:-$HOME/.cache}
[[ -z $(find "$build" "$prefix" -lname "$cache/*" | tee links) ]] || fail "links into the builder's cache: $(cat links)"
for program in "$build/kozero" "$prefix/bin/kozero"; do
  ! ldd "$program" | grep -F "=> $cache/" || fail "$program loads libraries of the builder's cache"
done
if [[ $(id -u) == 0 ]] && command -v setpriv >/dev/null; then
  chmod 755 "$work"
  setpriv --reuid=65534 --regid=65534 --clear-groups env -i "$prefix/bin/kozero" --version >nobodys 2>&1 ||
    { cat nobodys; fail "the installed program does not start for another user"; }
fi
if command -v readelf >/dev/null; then
  ! readelf -d "$prefix/bin/kozero" | grep -E 'R(UN)?PATH' | grep -F -e "$build" -e "${XDG_CACHE_HOME:-$HOME/.cache}" ||
    fail "the program searches libraries in a folder of its builder"
fi
grep -q 'prepend-path PATH' "$prefix"/share/modulefiles/kozero/* || fail "the modulefile"

cmake -S "$prefix/share/kozero/example" -B example -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" >configure.log ||
  { cat configure.log; fail "configuring the example"; }
cmake --build example >build.log || { cat build.log; fail "building the example"; }
"${mpiexec[@]}" -n 2 example/train_example "$deck" run.steps=20 zero.stage=3 run.dir="$work/step_000000020" >out
awk '/^step/ {last = $4; if (first == "") first = $4; ++count}
     END {exit !(count == 20 && last < first)}' out || { cat out; fail "20 steps with a falling loss"; }
"$prefix/bin/kozero" inspect "$work/step_000000020" --verify | grep -q 'every byte' || fail "the checkpoint"
status=0
example/train_example "$deck" optim.lr=-1 >out 2>errors || status=$?
[[ $status != 0 ]] && grep -q 'optim.lr = -1: accepted' errors || { cat errors; fail "a bad deck"; }
status=0
example/train_example >out 2>errors || status=$?
[[ $status == 2 ]] && grep -q '^usage: train_example DECK' errors || { cat errors; fail "no deck"; }
