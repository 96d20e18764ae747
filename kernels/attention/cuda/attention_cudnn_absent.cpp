// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_cudnn_absent.cpp: attention_cudnn.hpp for a program built without cuDNN's front end.
#include "kernels/attention/cuda/attention_cudnn.hpp"

namespace kozero::kernels {

std::string cudnn_version() { return ""; }
std::string cudnn_unavailable_reason(const CudnnAttention&) { return "this program was built without its front end"; }
std::int64_t cudnn_attention_workspace(const CudnnAttention&) { return 0; }
void cudnn_attention_forward(void*, const CudnnAttention&, const CudnnArrays&) {}
void cudnn_attention_backward(void*, const CudnnAttention&, const CudnnArrays&) {}

}  // namespace kozero::kernels
