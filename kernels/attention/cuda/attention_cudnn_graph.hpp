// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_cudnn_graph.hpp: cuDNN's graph of one attention, forward or backward, and the plan that computes it, for a
// present GPU or for a description of one. Arrays are attention.hpp's. Part of attention_cudnn.cpp; its test builds
// graphs for GPUs that are not present.
#pragma once
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <kozero/core/error.hpp>
#include "kernels/attention/cuda/attention_cudnn.hpp"

namespace kozero::kernels {

namespace fe = cudnn_frontend;

/// The target of plans: the GPU of `handle`, or if that is null the described GPU.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<const fe::DeviceProperties> description;
  int compute_capability = 0;  ///< of the described GPU: 80, 90
};

/// Names of the arrays in a graph.
enum CudnnArray : std::int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOutput,
  kLogsumexp,
  kOutputGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient
};

/// Forward or backward of one shape.
class CudnnGraph {
 public:
  CudnnGraph(const CudnnTarget& target, const CudnnAttention& shape, bool backward)
      : handle_(target.handle), shape_(shape) {
    if (handle_ == nullptr) {
      graph_.set_device_properties(target.description).set_sm_version(target.compute_capability);
    }
    const auto type = shape.type == CudnnType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
    graph_.set_io_data_type(type)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    backward ? describe_backward() : describe_forward();
    try {
      const bool built =
          good(graph_.validate(), "validate") && good(graph_.build_operation_graph(handle_), "build_operation_graph") &&
          good(graph_.create_execution_plans({fe::HeurMode_t::A}), "create_execution_plans") &&
          good(graph_.check_support(handle_), "check_support") && good(graph_.build_plans(handle_), "build_plans") &&
          good(graph_.get_workspace_size(workspace_), "get_workspace_size");
      if (built) return;
    } catch (const std::exception& missing) {  // a sub-library or a symbol that the front end looks up
      unavailable_reason_ = std::string("exception: ") + missing.what();
    }
    unavailable_reason_ = (backward ? "backward: " : "forward: ") + unavailable_reason_;
  }

  /// Why there is no plan; "" if there is one.
  [[nodiscard]] const std::string& unavailable_reason() const { return unavailable_reason_; }
  [[nodiscard]] std::int64_t workspace() const { return workspace_; }
  /// (B, heads, T, D) of an array of the graph, and the elements between neighbors along each.
  [[nodiscard]] std::vector<std::int64_t> extents(CudnnArray array) const { return arrays_.at(array)->get_dim(); }
  [[nodiscard]] std::vector<std::int64_t> strides(CudnnArray array) const { return arrays_.at(array)->get_stride(); }

  void run(void* stream, std::unordered_map<std::int64_t, void*>& arrays, void* workspace) {
    if (fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream)) != CUDNN_STATUS_SUCCESS) {
      throw Error(Failure::internal, "attention: cuDNN: cudnnSetStream failed");
    }
    fe::error_t error = graph_.execute(handle_, arrays, workspace);
    if (error.is_bad()) throw Error(Failure::internal, "attention: cuDNN: execute: " + error.get_message());
  }

 private:
  using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

  bool good(fe::error_t error, const char* call) {
    if (error.is_bad()) unavailable_reason_ = std::string(call) + ": " + error.get_message();
    return error.is_good();
  }

  /// (B, heads, T, D) with a row of `columns` elements per position.
  Tensor tensor(CudnnArray array, std::int64_t heads, std::int64_t columns) {
    return declare(graph_.tensor(fe::graph::Tensor_attributes()), array, heads, columns);
  }

  Tensor declare(Tensor tensor, CudnnArray array, std::int64_t heads, std::int64_t columns) {
    tensor->set_uid(array)
        .set_dim({shape_.batch, heads, shape_.positions, shape_.head_dim})
        .set_stride({shape_.positions * columns, shape_.head_dim, columns, 1});
    return arrays_[array] = tensor;
  }

  Tensor declare_logsumexp(Tensor tensor) {
    tensor->set_uid(kLogsumexp)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({shape_.batch, shape_.heads, shape_.positions, 1})
        .set_stride({shape_.heads * shape_.positions, shape_.positions, 1, 1});
    return arrays_[kLogsumexp] = tensor;
  }

  [[nodiscard]] std::int64_t qkv_columns() const { return (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim; }
  [[nodiscard]] std::int64_t y_columns() const { return shape_.heads * shape_.head_dim; }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)); }

  void describe_forward() {
    auto attributes = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(scale());
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    auto [y, logsumexp] =
        graph_.sdpa(tensor(kQuery, shape_.heads, qkv_columns()), tensor(kKey, shape_.kv_heads, qkv_columns()),
                    tensor(kValue, shape_.kv_heads, qkv_columns()), attributes);
    declare(y, kOutput, shape_.heads, y_columns())->set_output(true);
    declare_logsumexp(logsumexp)->set_output(true);
  }

  void describe_backward() {
    auto attributes =
        fe::graph::SDPA_backward_attributes().set_attn_scale(scale()).set_deterministic_algorithm(shape_.repeats);
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    const Tensor logsumexp = declare_logsumexp(graph_.tensor(fe::graph::Tensor_attributes()));
    auto [dq, dk, dv] =
        graph_.sdpa_backward(tensor(kQuery, shape_.heads, qkv_columns()), tensor(kKey, shape_.kv_heads, qkv_columns()),
                             tensor(kValue, shape_.kv_heads, qkv_columns()), tensor(kOutput, shape_.heads, y_columns()),
                             tensor(kOutputGradient, shape_.heads, y_columns()), logsumexp, attributes);
    declare(dq, kQueryGradient, shape_.heads, qkv_columns())->set_output(true);
    declare(dk, kKeyGradient, shape_.kv_heads, qkv_columns())->set_output(true);
    declare(dv, kValueGradient, shape_.kv_heads, qkv_columns())->set_output(true);
  }

  cudnnHandle_t handle_;
  CudnnAttention shape_;
  fe::graph::Graph graph_;
  std::map<CudnnArray, Tensor> arrays_;
  std::string unavailable_reason_;
  std::int64_t workspace_ = 0;
};

}  // namespace kozero::kernels
