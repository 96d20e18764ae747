// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapters.hpp: low-rank adapters (LoRA) beside frozen projections, and the layout of their tensors.
//   y_j += s dropout(x) A_j^T B_j^T      s = alpha / r, or alpha / sqrt(r)     x (N, I)   A_j (r, I)   B_j (O_j, r)
// y_j are the outputs of one linear map as published; a projection that joins several (q, k and v) has one adapter for
// each. A is normal with the variance 1 / (3 I), that of PEFT's uniform values, and B is zero, so that training begins
// with the base. The tensors are called MODULE.lora_A.weight and MODULE.lora_B.weight. They lie in units of their own,
// read beside the unit of their block, behind all units of the base, whose numbers they leave as they are.
// Backward computes x A^T again, so that an adapter stores no activations. Hu et al. 2021, "LoRA", arXiv:2106.09685.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/model/config.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/parameter_views.hpp>
#include <kozero/model/projection.hpp>

namespace kozero::model {

inline constexpr const char* kLoraA = ".lora_A.weight";
inline constexpr const char* kLoraB = ".lora_B.weight";

/// The adapter of the outputs [first, first + b.rows) of a projection.
struct Adapter {
  std::int64_t first = 0;
  MatrixRef a;
  MatrixRef b;
  float scale = 1.0F;
  std::uint64_t dropout_stream = 0;
};

/// A linear map as published: a projection, or the part of one that joins several.
struct LinearMap {
  std::string module;  ///< "model.layers.0.self_attn.q_proj"
  std::int64_t outputs = 0;
};

/// Lays out the adapters of a network while its base is laid out, and appends their units to the table at the end.
class AdapterLayout {
 public:
  explicit AdapterLayout(const Config& config) : config_(config) {}

  /// The adapters of a projection of `inputs` channels whose outputs are those of `maps`, one behind the other: of each
  /// map that a target names. `base`'s newest unit has the projection's weights.
  std::vector<Adapter> add(const ParameterTable& base, std::int64_t inputs, const std::vector<LinearMap>& maps);

  /// Appends the units. Without adapters the table stays as it is. Throws Error(deck) for a target that is the name of
  /// no linear map, with the nearest name.
  void append_to(ParameterTable& table) const;

 private:
  [[nodiscard]] bool is_target(const std::string& module) const;

  const Config& config_;
  ParameterTable adapters_;           // their units alone, laid out as in the whole table
  std::vector<int> beside_;           // by unit of adapters_: the base's unit
  std::vector<std::string> modules_;  // all linear maps
};

/// Memory for a call of an AdaptedProjection.
template <class Scalar>
struct AdapterScratch {
  Vector<Scalar> inputs;  // (N, I), only under dropout
  Vector<Scalar> part;    // (N, O_j), only if a projection joins several maps
  Vector<Scalar> low;     // (N, r): s dropout(x) A^T
  Vector<Scalar> dlow;    // (N, r)
};

/// A projection with adapters of its outputs, if it has any. Runs on the Pass's space; returns without fencing.
template <class Scalar>
class AdaptedProjection {
 public:
  explicit AdaptedProjection(const Projection<Scalar>& base, std::vector<Adapter> adapters = {})
      : base_(base), adapters_(std::move(adapters)) {}

  [[nodiscard]] std::int64_t num_inputs() const { return base_.num_inputs(); }
  [[nodiscard]] std::int64_t num_outputs() const { return base_.num_outputs(); }

  // As Projection's functions of these names.
  void forward(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> y, Matrix<const Scalar> x,
               const WeightViews<Scalar>& weights) const;
  void forward_gelu(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> y, Matrix<Scalar> active,
                    Matrix<const Scalar> x, const WeightViews<Scalar>& weights) const;
  /// Adds a branch, of which this is the last projection, to the residual stream: y = x + dropout(this(branch)).
  /// Without dropout the product adds x.
  void join(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> y, Matrix<const Scalar> x,
            Matrix<const Scalar> branch, const WeightViews<Scalar>& weights, std::uint64_t dropout_key) const;
  void backward_input(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> dx,
                      Matrix<const Scalar> dy, const WeightViews<Scalar>& weights) const;
  void backward_input_of_gelu(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> dhidden,
                              Matrix<const Scalar> dy, Matrix<const Scalar> hidden,
                              const WeightViews<Scalar>& weights) const;
  void backward_weights(const Pass& pass, const AdapterScratch<Scalar>& scratch, const GradientViews& gradients,
                        Matrix<const Scalar> dy, Matrix<const Scalar> x, const WeightViews<Scalar>& weights,
                        Vector<float> workspace) const;
  void backward(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> dx,
                const GradientViews& gradients, Matrix<const Scalar> dy, Matrix<const Scalar> x,
                const WeightViews<Scalar>& weights, Vector<float> workspace) const;

  /// Enlarges `extents` to what `num_rows` rows of this projection need, with or without dropout.
  struct Extents {
    std::int64_t inputs = 0, part = 0, low = 0;
  };
  void enlarge(Extents& extents, std::int64_t num_rows, bool drops) const;

 private:
  /// y += the adapters' outputs.
  void add_outputs(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> y, Matrix<const Scalar> x,
                   const WeightViews<Scalar>& weights) const;
  /// The adapter's input: x, or a copy of it with dropped elements.
  Matrix<const Scalar> input(const Pass& pass, const AdapterScratch<Scalar>& scratch, const Adapter& adapter,
                             Matrix<const Scalar> x) const;
  /// s input A^T
  Matrix<Scalar> low(const Pass& pass, const AdapterScratch<Scalar>& scratch, const Adapter& adapter,
                     Matrix<const Scalar> input, const WeightViews<Scalar>& weights) const;
  /// The adapter's columns of dy.
  Matrix<const Scalar> part_of(const Pass& pass, const AdapterScratch<Scalar>& scratch, const Adapter& adapter,
                               Matrix<const Scalar> dy) const;
  /// s dy_j B
  Matrix<Scalar> dlow(const Pass& pass, const AdapterScratch<Scalar>& scratch, const Adapter& adapter,
                      Matrix<const Scalar> dy_of_map, const WeightViews<Scalar>& weights) const;
  [[nodiscard]] bool is_whole(const Adapter& adapter) const { return adapter.b.rows == num_outputs(); }

  Projection<Scalar> base_;
  std::vector<Adapter> adapters_;
};

/// Memory for calls of any of `projections` with `num_rows` rows.
template <class Scalar>
AdapterScratch<Scalar> take_adapter_scratch(Scratch& scratch, std::int64_t num_rows, bool drops,
                                            const std::vector<const AdaptedProjection<Scalar>*>& projections) {
  typename AdaptedProjection<Scalar>::Extents extents;
  for (const auto* projection : projections) projection->enlarge(extents, num_rows, drops);
  AdapterScratch<Scalar> taken;
  taken.inputs = scratch.vector<Scalar>(extents.inputs);
  taken.part = scratch.vector<Scalar>(extents.part);
  taken.low = scratch.vector<Scalar>(extents.low);
  taken.dlow = scratch.vector<Scalar>(extents.low);
  return taken;
}

}  // namespace kozero::model
