# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# GpuEmulator.cmake: what KOZERO_GPU_EMULATOR=ON needs: external::zstd, with which nvcc packs PTX. Apart from
# Dependencies.cmake, all of whose Debian packages install_packages.sh installs at once.

if(NOT KOZERO_CUDA)
  message(FATAL_ERROR "KOZERO_GPU_EMULATOR=ON needs KOZERO_CUDA=ON: the emulator runs the programs of a CUDA build")
endif()
kozero_pkg_config(zstd libzstd WHAT "zstd" DEBIAN libzstd-dev SPACK zstd)
