// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_cudnn.cpp: cuDNN loaded at run time, graphs cached by shape, and their execution.
#include <dlfcn.h>
#include <cstdlib>
#include <map>
#include <memory>
#include <unordered_map>

#include "kernels/attention/cuda/attention_cudnn_graph.hpp"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the front end looks up its functions in this library
}

namespace kozero::kernels {
namespace {

/// cuDNN, opened at the first call.
struct Library {
  cudnnHandle_t handle = nullptr;  ///< null if there is none ...
  std::string why;                 ///< ... and why
};

Library open_library() {
  constexpr const char* kVariable = "KOZERO_CUDNN_LIBRARY";
  const char* const given = std::getenv(kVariable);
  fe::cudnn_dlhandle = dlopen(given != nullptr ? given : "libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  if (fe::cudnn_dlhandle == nullptr) {
    const std::string why = dlerror();
    if (given != nullptr) throw Error(Failure::input, std::string(kVariable) + " = " + given + ": " + why);
    return {nullptr, why + "; " + kVariable + " may name it"};
  }
  Library library;
  const cudnnStatus_t status = fe::detail::create_handle(&library.handle);
  if (status == CUDNN_STATUS_SUCCESS) return library;
  return {nullptr, std::string("cudnnCreate: ") + fe::detail::get_error_string(status)};
}

const Library& library() {
  static const Library opened = [] {
    try {
      return open_library();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& missing) {  // the front end throws if it finds no libcudart or symbol
      return Library{nullptr, std::string("exception: ") + missing.what()};
    }
  }();
  return opened;
}

cudnnHandle_t handle() { return library().handle; }

struct Graphs {
  explicit Graphs(const CudnnAttention& shape)
      : forward({.handle = handle()}, shape, false), backward({.handle = handle()}, shape, true) {}
  CudnnGraph forward;
  CudnnGraph backward;
};

constexpr std::int64_t kHeadAlignment = 8;

/// Why there are no graphs of the shape; "" if there may be.
std::string reason_without_graphs(const CudnnAttention& shape) {
  if (handle() == nullptr) return library().why;
  if (shape.batch * shape.positions == 0) return "no positions";
  if (shape.head_dim % kHeadAlignment != 0) return "heads of " + std::to_string(shape.head_dim) + ", no multiple of 8";
  return "";
}

Graphs& graphs_of(const CudnnAttention& shape) {
  static auto& all =
      *new std::map<CudnnAttention, std::unique_ptr<Graphs>>;  // never destroyed: cuDNN may end before static objects
  auto& graphs = all[shape];
  if (graphs == nullptr) graphs = std::make_unique<Graphs>(shape);
  return *graphs;
}

/// The address of head `head` of the array's first row.
void* head_of(const void* array, std::int64_t head, const CudnnAttention& shape) {
  constexpr std::int64_t kElement = 2;
  return const_cast<char*>(static_cast<const char*>(array)) + head * shape.head_dim * kElement;
}

std::unordered_map<std::int64_t, void*> inputs_of(const CudnnAttention& shape, const CudnnArrays& arrays) {
  return {{kQuery, head_of(arrays.qkv, 0, shape)},
          {kKey, head_of(arrays.qkv, shape.heads, shape)},
          {kValue, head_of(arrays.qkv, shape.heads + shape.kv_heads, shape)},
          {kOutput, arrays.y},
          {kLogsumexp, arrays.logsumexp}};
}

}  // namespace

std::string cudnn_version() {
  if (handle() == nullptr) return "";
  const auto version = static_cast<long>(fe::detail::get_backend_version());
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string cudnn_unavailable_reason(const CudnnAttention& shape) {
  const std::string early = reason_without_graphs(shape);
  if (!early.empty()) return early;
  const Graphs& graphs = graphs_of(shape);
  return graphs.forward.unavailable_reason().empty() ? graphs.backward.unavailable_reason()
                                                     : graphs.forward.unavailable_reason();
}

std::int64_t cudnn_attention_workspace(const CudnnAttention& shape) {
  if (!cudnn_unavailable_reason(shape).empty()) return 0;
  const Graphs& graphs = graphs_of(shape);
  return std::max(graphs.forward.workspace(), graphs.backward.workspace());
}

void cudnn_attention_forward(void* stream, const CudnnAttention& shape, const CudnnArrays& arrays) {
  auto all = inputs_of(shape, arrays);
  graphs_of(shape).forward.run(stream, all, arrays.workspace);
}

void cudnn_attention_backward(void* stream, const CudnnAttention& shape, const CudnnArrays& arrays) {
  auto all = inputs_of(shape, arrays);
  all[kOutputGradient] = const_cast<void*>(arrays.dy);
  all[kQueryGradient] = head_of(arrays.dqkv, 0, shape);
  all[kKeyGradient] = head_of(arrays.dqkv, shape.heads, shape);
  all[kValueGradient] = head_of(arrays.dqkv, shape.heads + shape.kv_heads, shape);
  graphs_of(shape).backward.run(stream, all, arrays.workspace);
}

}  // namespace kozero::kernels
