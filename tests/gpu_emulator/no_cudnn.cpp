// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// no_cudnn.cpp: libcudnn.so.9 without a function of cuDNN, found before a real one.
extern "C" void kozero_gpu_emulator_no_cudnn() {}
