// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// no_cudnn.cpp: a libcudnn.so.9 without functions, which the loader finds before a real one.
extern "C" void kozero_gpu_emulator_no_cudnn() {}
