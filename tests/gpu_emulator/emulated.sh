#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# emulated.sh FOLDER COMMAND...: runs a CUDA program, or a command that starts one, with the emulator built in FOLDER.
set -euo pipefail
folder=$(cd "$1" && pwd)
shift
export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export KOKKOS_TOOLS_LIBS=$folder/libcudart.so.13  # labels of kernels and arrays
export OMP_PROC_BIND=${OMP_PROC_BIND:-false}
exec "$@"
