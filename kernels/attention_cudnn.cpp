// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <kozero/core/error.hpp>
#include <kozero/kernels/attention_cudnn.hpp>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the front end looks its functions up in this
}

namespace kozero::kernels {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Names of the arrays in a graph.
enum Array : std::int64_t {
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

/// cuDNN as it was opened at the first question.
struct Library {
  cudnnHandle_t handle = nullptr;  ///< null where there is none ...
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
    } catch (const std::exception& missing) {  // the front end throws where it finds no libcudart or symbol
      return Library{nullptr, std::string("exception: ") + missing.what()};
    }
  }();
  return opened;
}

cudnnHandle_t handle() { return library().handle; }

void check(fe::error_t error, const char* call) {
  if (error.is_good()) return;
  throw Error(Failure::internal, std::string("attention: cuDNN: ") + call + ": " + error.get_message());
}

/// Forward or backward of one shape.
class Graph {
 public:
  Graph(const CudnnAttention& shape, bool backward) : shape_(shape) {
    const auto type = shape.type == CudnnType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
    graph_.set_io_data_type(type)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    backward ? describe_backward() : describe_forward();
    try {
      const bool built = good(graph_.validate(), "validate") &&
                         good(graph_.build_operation_graph(handle()), "build_operation_graph") &&
                         good(graph_.create_execution_plans({fe::HeurMode_t::A}), "create_execution_plans") &&
                         good(graph_.check_support(handle()), "check_support") &&
                         good(graph_.build_plans(handle()), "build_plans") &&
                         good(graph_.get_workspace_size(workspace_), "get_workspace_size");
      if (built) return;
    } catch (const std::exception& missing) {  // a sub-library or a symbol that the front end looks up
      why_ = std::string("exception: ") + missing.what();
    }
    why_ = (backward ? "backward: " : "forward: ") + why_;
  }

  /// Why there is no plan; "" where there is one.
  [[nodiscard]] const std::string& why() const { return why_; }
  [[nodiscard]] std::int64_t workspace() const { return workspace_; }

  void run(void* stream, std::unordered_map<std::int64_t, void*>& arrays, void* workspace) {
    if (fe::detail::set_stream(handle(), static_cast<cudaStream_t>(stream)) != CUDNN_STATUS_SUCCESS) {
      throw Error(Failure::internal, "attention: cuDNN: cudnnSetStream failed");
    }
    check(graph_.execute(handle(), arrays, workspace), "execute");
  }

 private:
  bool good(fe::error_t error, const char* call) {
    if (error.is_bad()) why_ = std::string(call) + ": " + error.get_message();
    return error.is_good();
  }

  /// (B, heads, T, D) with a row of `columns` elements a position.
  Tensor tensor(Array array, std::int64_t heads, std::int64_t columns) {
    return place(graph_.tensor(fe::graph::Tensor_attributes()), array, heads, columns);
  }

  Tensor place(Tensor tensor, Array array, std::int64_t heads, std::int64_t columns) const {
    tensor->set_uid(array)
        .set_dim({shape_.batch, heads, shape_.positions, shape_.head_dim})
        .set_stride({shape_.positions * columns, shape_.head_dim, columns, 1});
    return tensor;
  }

  Tensor place_logsumexp(Tensor tensor) const {
    tensor->set_uid(kLogsumexp)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({shape_.batch, shape_.heads, shape_.positions, 1})
        .set_stride({shape_.heads * shape_.positions, shape_.positions, 1, 1});
    return tensor;
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
    place(y, kOutput, shape_.heads, y_columns())->set_output(true);
    place_logsumexp(logsumexp)->set_output(true);
  }

  void describe_backward() {
    auto attributes =
        fe::graph::SDPA_backward_attributes().set_attn_scale(scale()).set_deterministic_algorithm(shape_.repeats);
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    const Tensor logsumexp = place_logsumexp(graph_.tensor(fe::graph::Tensor_attributes()));
    auto [dq, dk, dv] =
        graph_.sdpa_backward(tensor(kQuery, shape_.heads, qkv_columns()), tensor(kKey, shape_.kv_heads, qkv_columns()),
                             tensor(kValue, shape_.kv_heads, qkv_columns()), tensor(kOutput, shape_.heads, y_columns()),
                             tensor(kOutputGradient, shape_.heads, y_columns()), logsumexp, attributes);
    place(dq, kQueryGradient, shape_.heads, qkv_columns())->set_output(true);
    place(dk, kKeyGradient, shape_.kv_heads, qkv_columns())->set_output(true);
    place(dv, kValueGradient, shape_.kv_heads, qkv_columns())->set_output(true);
  }

  CudnnAttention shape_;
  fe::graph::Graph graph_;
  std::string why_;
  std::int64_t workspace_ = 0;
};

struct Graphs {
  explicit Graphs(const CudnnAttention& shape) : forward(shape, false), backward(shape, true) {}
  Graph forward;
  Graph backward;
};

constexpr std::int64_t kHeadAlignment = 8;

/// Whether there may be graphs of the shape at all.
std::string reason_without_graphs(const CudnnAttention& shape) {
  if (handle() == nullptr) return library().why;
  if (shape.batch * shape.positions == 0) return "no positions";
  if (shape.head_dim % kHeadAlignment != 0) return "heads of " + std::to_string(shape.head_dim) + ", no multiple of 8";
  return "";
}

Graphs& graphs_of(const CudnnAttention& shape) {
  static auto& all =
      *new std::map<CudnnAttention, std::unique_ptr<Graphs>>;  // cuDNN may end before what is static here
  auto& graphs = all[shape];
  if (graphs == nullptr) graphs = std::make_unique<Graphs>(shape);
  return *graphs;
}

/// The array's part that begins with head `head` of its first row.
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
  return graphs.forward.why().empty() ? graphs.backward.why() : graphs.forward.why();
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
