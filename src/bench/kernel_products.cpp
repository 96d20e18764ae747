// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// kernel_products.cpp: the compute-bound kernels: matrix products at every shape of the network, and attention.
#include <fmt/format.h>
#include <algorithm>

#include <kozero/core/precision.hpp>
#include <kozero/model/head.hpp>
#include <kozero/model/self_attention.hpp>
#include "kernels/attention/attention.hpp"
#include "kernels/matmul/matmul.hpp"
#include "src/bench/kernel_case.hpp"

namespace kozero::bench {

using kernels::Op;

std::int64_t KernelShapes::head_rows() const { return std::min(model::Head<float>::kChunkRows, rows()); }

std::int64_t KernelShapes::head_columns() const {
  return model::padded_vocabulary(model.vocab_block > 0 ? std::min(model.vocab_block, model.vocab) : model.vocab);
}

std::int64_t KernelShapes::head_blocks() const { return (model.vocab + head_columns() - 1) / head_columns(); }

std::int64_t KernelShapes::block_extent() const {
  return model.dim * (qkv_columns() + model.heads * model.head_dim + up_columns() + model.ffn);
}

std::int64_t KernelShapes::largest_call_bytes() const {
  const std::int64_t widest = std::max({qkv_columns(), up_columns(), model.dim});
  const std::int64_t head =
      model::padded_vocabulary(model.vocab) * (model.dim + head_rows()) + 2 * head_rows() * model.dim;
  const std::int64_t block = 4 * rows() * widest + 3 * block_extent();
  return static_cast<std::int64_t>(sizeof(float)) * (std::max(head, block) + (std::int64_t{1} << 20));
}

namespace {

/// y (M, N) = x (M, K) W, with W stored as (K, N), or as (N, K) if `outputs_first`.
struct Layer {
  std::string name;
  std::int64_t rows, inputs, outputs;
  bool outputs_first;
  std::int64_t calls;
  bool adds;                                    ///< adds to W's gradient, as after the first micro-step
  bool biased = false;                          ///< computes a bias's gradient with W's
  bool into_gelu = false, out_of_gelu = false;  ///< y is a GELU's input; x is a GELU's output
  bool onto_residual = false;                   ///< adds y to the residual stream in the same call
};

template <class Scalar>
class Products {
 public:
  Products(std::vector<KernelCase>& cases, OperandRings& rings) : cases_(cases), rings_(rings) {}

  void add(const Layer& layer) {
    auto& in = rings_.inputs;
    auto& out = rings_.outputs;
    const auto weights = [=, &in] {
      return layer.outputs_first ? in.take<const Scalar>(layer.outputs, layer.inputs)
                                 : in.take<const Scalar>(layer.inputs, layer.outputs);
    };
    const Op forwards = layer.outputs_first ? Op::transpose : Op::none;
    const Op backwards = layer.outputs_first ? Op::none : Op::transpose;
    const std::string forward = layer.onto_residual ? "forward, residual" : "forward";
    add(layer, layer.into_gelu ? "forward, gelu" : forward, [=, &in, &out] {
      const auto y = out.take<Scalar>(layer.rows, layer.outputs);
      const auto x = in.take<const Scalar>(layer.rows, layer.inputs);
      if (layer.into_gelu) {
        kernels::matmul_gelu<Device, Scalar>(Device(), y, out.take<Scalar>(layer.rows, layer.outputs), x, forwards,
                                             weights(), in.take<const Scalar>(layer.biased ? layer.outputs : 0));
      } else if (layer.onto_residual) {
        kernels::matmul_add<Device, Scalar>(Device(), y, x, forwards, weights(), {},
                                            in.take<const Scalar>(layer.rows, layer.outputs));
      } else {
        kernels::matmul(Device(), y, Op::none, x, forwards, weights(), false);
      }
    });
    add(layer, layer.out_of_gelu ? "to input, gelu" : "to input", [=, &in, &out] {
      const auto dx = out.take<Scalar>(layer.rows, layer.inputs);
      const auto dy = in.take<const Scalar>(layer.rows, layer.outputs);
      if (layer.out_of_gelu) {
        kernels::matmul_gelu_gradient<Device, Scalar>(Device(), dx, dy, backwards, weights(),
                                                      in.take<const Scalar>(layer.rows, layer.inputs));
      } else {
        kernels::matmul(Device(), dx, Op::none, dy, backwards, weights(), false);
      }
    });
    const bool biased = layer.biased && kBiasInProduct;
    add(layer, biased ? "to weights, bias" : "to weights", [=, &in, &out] {
      const auto x = in.take<const Scalar>(layer.rows, layer.inputs);
      const auto dy = in.take<const Scalar>(layer.rows, layer.outputs);
      const auto a = layer.outputs_first ? dy : x;
      const auto b = layer.outputs_first ? x : dy;
      const auto dweight = out.take<float>(a.extent(1), b.extent(1));
      if (biased) {
        kernels::matmul_bias_gradient<Device, Scalar>(
            Device(), dweight, a, b, layer.adds, layer.outputs_first ? kernels::Operand::a : kernels::Operand::b,
            out.take<float>(layer.outputs), out.take<float>(kernels::row_reduction_workspace(layer.outputs)));
      } else {
        kernels::matmul(Device(), dweight, Op::transpose, a, Op::none, b, layer.adds);
      }
    });
  }

 private:
  void add(const Layer& layer, const std::string& direction, std::function<void()> call) {
    const double operations = 2.0 * static_cast<double>(layer.rows) * static_cast<double>(layer.inputs * layer.outputs);
    cases_.push_back({layer.name + " " + direction,
                      fmt::format("{} x {} x {}", layer.rows, layer.outputs, layer.inputs), layer.calls,
                      KernelCase::Measure::operations, operations, std::move(call), true});
  }

  std::vector<KernelCase>& cases_;
  OperandRings& rings_;
};

template <class Scalar>
void add_attention(std::vector<KernelCase>& cases, const KernelShapes& shapes, OperandRings& rings) {
  const auto shape = model::attention_shape(shapes.model, shapes.batch, shapes.model.seq);
  auto& in = rings.inputs;
  auto& out = rings.outputs;
  const auto lengths = shape.batch * shape.heads;
  const double square = static_cast<double>(lengths * shape.head_dim) * static_cast<double>(shape.positions) *
                        static_cast<double>(shape.positions);
  const std::string text = fmt::format("B {} H {} KV {} T {} D {}", shape.batch, shape.heads, shape.kv_heads,
                                       shape.positions, shape.head_dim);
  const std::int64_t calls = shapes.model.layers * shapes.micro_steps;
  cases.push_back({"attention forward", text, calls, KernelCase::Measure::operations, 2.0 * square, [=, &in, &out] {
                     kernels::attention_forward(Device(), out.take<Scalar>(shape.rows(), shape.y_columns()),
                                                out.take<float>(lengths, shape.positions),
                                                in.take<const Scalar>(shape.rows(), shape.qkv_columns()), shape,
                                                out.take<float>(kernels::attention_workspace<Scalar>(shape)));
                   }});
  cases.push_back({"attention backward", text, calls, KernelCase::Measure::operations, 5.0 * square, [=, &in, &out] {
                     kernels::attention_backward(Device(), out.take<Scalar>(shape.rows(), shape.qkv_columns()),
                                                 in.take<const Scalar>(shape.rows(), shape.y_columns()),
                                                 in.take<const Scalar>(shape.rows(), shape.y_columns()),
                                                 in.take<const float>(lengths, shape.positions),
                                                 in.take<const Scalar>(shape.rows(), shape.qkv_columns()), shape,
                                                 out.take<float>(kernels::attention_workspace<Scalar>(shape)));
                   }});
}

}  // namespace

template <class Scalar>
KernelCase product_probe() {
  const auto call = [] { return kernels::product_probe<Device, Scalar>(Device()); };
  return {std::string("product probe, ") + kernels::multiplier<Scalar>(),
          "in the first-level caches",
          0,
          KernelCase::Measure::operations,
          call(),
          [=] { static_cast<void>(call()); }};
}

template <class Scalar>
void add_product_cases(std::vector<KernelCase>& cases, const KernelShapes& shapes, OperandRings& rings) {
  const model::Config& model = shapes.model;
  const bool outputs_first = model.rotary;  // Llama's published orientation; GPT-2's has the inputs first
  const bool gelu = !shapes.gated();
  const bool biased = shapes.biased();
  const bool residual = model.dropout == 0.0F;
  const std::int64_t calls = model.layers * shapes.micro_steps;
  const std::int64_t rows = shapes.rows();
  const bool adds = shapes.micro_steps > 1;
  Products<Scalar> products(cases, rings);
  products.add({"qkv", rows, model.dim, shapes.qkv_columns(), outputs_first, calls, adds, shapes.qkv_biased()});
  const std::int64_t heads = model.heads * model.head_dim;
  products.add({"attention out", rows, heads, model.dim, outputs_first, calls, adds, biased, false, false, residual});
  products.add({"mlp up", rows, model.dim, shapes.up_columns(), outputs_first, calls, adds, biased, gelu});
  products.add({"mlp down", rows, model.ffn, model.dim, outputs_first, calls, adds, biased, false, gelu, residual});
  const std::int64_t chunks = (rows + shapes.head_rows() - 1) / shapes.head_rows();
  const std::int64_t head_calls = chunks * shapes.head_blocks() * shapes.micro_steps;
  products.add({"head", shapes.head_rows(), model.dim, shapes.head_columns(), true, head_calls, head_calls > 1});
  add_attention<Scalar>(cases, shapes, rings);
}

#define KOZERO_INSTANTIATE(T)                                                                       \
  template void add_product_cases<T>(std::vector<KernelCase>&, const KernelShapes&, OperandRings&); \
  template KernelCase product_probe<T>();
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::bench
