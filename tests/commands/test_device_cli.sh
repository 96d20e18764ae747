#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_device_cli.sh KOZERO MPIEXEC INPUTS CASE DRIVER: run.device, with a copy of the program in its own folder, a
# script as kozero-cuda and, if a case needs it, the driver mock in the folder DRIVER.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"
driver=$5
mkdir bin
cp "$kozero" bin/kozero
ln -s "${kozero%/*}/arrow" bin/arrow  # where the program looks for libraries
kozero=$PWD/bin/kozero

make_cuda_program() {
  printf '#!/bin/sh\necho "on the GPU: $*"\n' >bin/kozero-cuda
  chmod +x bin/kozero-cuda
}

with_gpus() {
  local gpus=$1
  shift
  LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} DRIVER_MOCK_GPUS=$gpus "$@"
}

hand_over() {
  make_cuda_program
  local deck="$inputs/quickstart.toml"
  sed '/^.run.$/a device = "host"' "$deck" >host.toml
  sed '/^.run.$/a device = "cuda"' "$deck" >cuda.toml
  expect 0 "^on the GPU: train $deck run.steps=1" with_gpus 1 "$kozero" train "$deck" run.steps=1
  expect 0 "^on the GPU: train cuda.toml" with_gpus 1 "$kozero" train cuda.toml
  expect 0 "^on the GPU: eval runs/x data.text" with_gpus 2 "$kozero" eval runs/x data.text=a
  expect 0 "^on the GPU: bench kernels host.toml run.device=cuda" with_gpus 1 "$kozero" bench kernels host.toml run.device=cuda
  expect 0 "^on the GPU: verify cuda.toml" with_gpus 1 $mpiexec -n 2 "$kozero" verify cuda.toml
  lines 2 '^on the GPU: verify cuda.toml'
  expect 0 'parameters on 2 ranks' with_gpus 1 "$kozero" plan cuda.toml
  expect 0 '^2$' with_gpus 1 "$kozero" ranks train cuda.toml
  sed '/^\[zero\]/a stge = 3' "$deck" >wrong.toml
  expect 2 'did you mean stage' with_gpus 1 "$kozero" train wrong.toml
  expect 2 'run.device = "hots": accepted: auto . host . cuda; did you mean host' with_gpus 1 "$kozero" train host.toml run.device=hots
}

stay_on_the_host() {
  make_text
  sed '/^.run.$/a device = "host"' "$inputs/quickstart.toml" >host.toml
  sed '/^.run.$/a device = "cuda"' "$inputs/quickstart.toml" >cuda.toml
  # shellcheck disable=SC2086
  expect 0 'note         a GPU is here and run.device = "auto", but kozero-cuda is not beside this program: .*build' \
    with_gpus 1 "$kozero" train "$inputs/quickstart.toml" $tiny
  expect 2 'cuda.toml:[0-9]+: run.device = "cuda": kozero-cuda is not beside this program: .*; accepted here are "auto", "host"' \
    with_gpus 1 $mpiexec -n 2 "$kozero" train cuda.toml
  lines 1 'error'
  expect 2 'bin/kozero-bench: No such file or directory; it has the benchmarks: .*kozero.sh bench .* --target kozero-bench' \
    $mpiexec -n 2 "$kozero" bench step host.toml
  lines 1 'error'
  make_cuda_program
  # shellcheck disable=SC2086
  expect 0 'output in' with_gpus 1 "$kozero" train host.toml $tiny
  lines 0 'on the GPU|a GPU is here'
  # shellcheck disable=SC2086
  expect 0 'output in' with_gpus 0 "$kozero" train "$inputs/quickstart.toml" $tiny
  lines 0 'on the GPU|a GPU is here'
  expect 2 'cuda.toml:[0-9]+: run.device = "cuda": the NVIDIA driver offers no GPU .CUDA_VISIBLE_DEVICES' with_gpus 0 "$kozero" train cuda.toml
  expect 2 'the NVIDIA driver offers no GPU .cuInit: 100' env "LD_LIBRARY_PATH=$driver" "$kozero" train cuda.toml
  expect 2 'command line: run.products = "tf32": TF32 is of GPUs; accepted on the host are' "$kozero" train host.toml run.products=tf32
  printf 'no program' >bin/kozero-cuda
  expect 2 'command line: run.device = "cuda": kozero-cuda does not start; accepted here' with_gpus 1 "$kozero" train host.toml run.device=cuda
  # A run trained on a GPU is read on the host.
  sed -i 's/^device = .*/device = "cuda"/' run/deck.toml
  expect 0 'validation   loss' "$kozero" eval run
  expect 2 'run.device = "cuda"' "$kozero" eval run run.device=cuda
}

run_case
