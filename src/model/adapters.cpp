// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapters.cpp: the tensors of low-rank adapters, and their part of a projection's forward and backward.
#include <fnmatch.h>
#include <algorithm>
#include <cmath>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/core/random.hpp>
#include <kozero/model/adapters.hpp>
#include "kernels/launch/fill.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/ops/dropout.hpp"
#include "kernels/ops/gelu.hpp"

namespace kozero::model {

using kernels::Op;

namespace {

/// "transformer.h.0.attn.c_attn", "h.0.attn.c_attn", "0.attn.c_attn", "attn.c_attn" and "c_attn": a target may be any.
std::vector<std::string> names_of(const std::string& prefix, const std::string& module) {
  std::string name = module.starts_with(prefix) ? module : prefix + module;
  std::vector<std::string> names = {name};
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    names.push_back(name.substr(dot + 1));
  }
  return names;
}

bool matches(const std::string& target, const std::string& prefix, const std::string& module) {
  if (target == kAllLinear) return true;
  return std::ranges::any_of(names_of(prefix, module), [&](const std::string& name) {
    return ::fnmatch(target.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

[[noreturn]] void refuse_target(const std::string& target, const std::string& prefix,
                                const std::vector<std::string>& modules) {
  std::vector<std::string> accepted = {kAllLinear};
  for (const std::string& module : modules) {
    for (std::string& name : names_of(prefix, module)) accepted.push_back(std::move(name));
  }
  const std::string nearest = nearest_name(target, accepted.data(), accepted.data() + accepted.size());
  throw Error(Failure::deck, "model.lora.targets: \"" + target + "\" is the name of no linear map of a block; " +
                                 (nearest.empty() ? "accepted: \"all-linear\" and names such as \"" +
                                                        names_of(prefix, modules.front()).back() + "\""
                                                  : "did you mean \"" + nearest + "\"?"));
}

}  // namespace

float Lora::scale() const {
  const auto r = static_cast<float>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

bool Lora::operator==(const Lora& other) const {
  return rank == other.rank && alpha == other.alpha && targets == other.targets && rslora == other.rslora;
}

bool AdapterLayout::is_target(const std::string& module) const {
  const std::string prefix = architecture(config_.arch).prefix;
  return std::ranges::any_of(config_.lora.targets,
                             [&](const std::string& target) { return matches(target, prefix, module); });
}

std::vector<Adapter> AdapterLayout::add(const ParameterTable& base, std::int64_t inputs,
                                        const std::vector<LinearMap>& maps) {
  std::vector<Adapter> adapters;
  const Lora& lora = config_.lora;
  const int unit = base.num_units() - 1;
  std::int64_t first = 0;
  for (const LinearMap& map : maps) {
    modules_.push_back(map.module);
    if (lora.rank > 0 && is_target(map.module)) {
      if (beside_.empty() || beside_.back() != unit) {
        adapters_.add_unit("", kAdapterSlot);
        beside_.push_back(unit);
      }
      const float deviation = 1.0F / std::sqrt(3.0F * static_cast<float>(inputs));
      MatrixRef a = add_matrix(adapters_, map.module + kLoraA, lora.rank, inputs, deviation);
      MatrixRef b = add_zero_matrix(adapters_, map.module + kLoraB, map.outputs, lora.rank);
      a.in_adapters = b.in_adapters = true;
      adapters.push_back({first, a, b, lora.scale(), stream_key(config_.seed, "dropout." + map.module + ".lora")});
    }
    first += map.outputs;
  }
  return adapters;
}

void AdapterLayout::append_to(ParameterTable& table) const {
  if (config_.lora.rank == 0) return;
  const std::string prefix = architecture(config_.arch).prefix;
  for (const std::string& target : config_.lora.targets) {
    const auto is_named = [&](const std::string& module) { return matches(target, prefix, module); };
    if (std::ranges::none_of(modules_, is_named)) refuse_target(target, prefix, modules_);
  }
  for (int unit = 0; unit < adapters_.num_units(); ++unit) {
    table.add_adapters(beside_[static_cast<std::size_t>(unit)]);
    for (const Parameter& row : adapters_.rows_of(unit)) table.add(row);
  }
}

template <class Scalar>
void AdaptedProjection<Scalar>::enlarge(Extents& extents, std::int64_t num_rows, bool drops) const {
  for (const Adapter& adapter : adapters_) {
    if (drops) extents.inputs = std::max(extents.inputs, num_rows * num_inputs());
    if (!is_whole(adapter)) extents.part = std::max(extents.part, num_rows * adapter.b.rows);
    extents.low = std::max(extents.low, num_rows * adapter.a.rows);
  }
}

template <class Scalar>
Matrix<const Scalar> AdaptedProjection<Scalar>::input(const Pass& pass, const AdapterScratch<Scalar>& scratch,
                                                      const Adapter& adapter, Matrix<const Scalar> x) const {
  if (pass.adapter_dropout == 0.0F) return x;
  const auto dropped = as_matrix(scratch.inputs, pass.num_rows(), num_inputs());
  Kokkos::deep_copy(pass.space, dropped, x);
  kernels::dropout(pass.space, dropped, pass.sample_ids, pass.positions, pass.adapter_dropout, adapter.dropout_stream);
  return dropped;
}

template <class Scalar>
Matrix<Scalar> AdaptedProjection<Scalar>::low(const Pass& pass, const AdapterScratch<Scalar>& scratch,
                                              const Adapter& adapter, Matrix<const Scalar> input,
                                              const WeightViews<Scalar>& weights) const {
  const auto result = as_matrix(scratch.low, pass.num_rows(), adapter.a.rows);
  kernels::matmul(pass.space, result, Op::none, input, Op::transpose, weights[adapter.a], false);
  kernels::scale(pass.space, flat(result), adapter.scale);
  return result;
}

template <class Scalar>
Matrix<const Scalar> AdaptedProjection<Scalar>::part_of(const Pass& pass, const AdapterScratch<Scalar>& scratch,
                                                        const Adapter& adapter, Matrix<const Scalar> dy) const {
  if (is_whole(adapter)) return dy;
  const auto part = as_matrix(scratch.part, pass.num_rows(), adapter.b.rows);
  kernels::take_columns<Device, Scalar>(pass.space, part, dy, adapter.first);
  return part;
}

template <class Scalar>
Matrix<Scalar> AdaptedProjection<Scalar>::dlow(const Pass& pass, const AdapterScratch<Scalar>& scratch,
                                               const Adapter& adapter, Matrix<const Scalar> dy_of_map,
                                               const WeightViews<Scalar>& weights) const {
  const auto result = as_matrix(scratch.dlow, pass.num_rows(), adapter.a.rows);
  kernels::matmul(pass.space, result, Op::none, dy_of_map, Op::none, weights[adapter.b], false);
  kernels::scale(pass.space, flat(result), adapter.scale);
  return result;
}

template <class Scalar>
void AdaptedProjection<Scalar>::add_outputs(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> y,
                                            Matrix<const Scalar> x, const WeightViews<Scalar>& weights) const {
  for (const Adapter& adapter : adapters_) {
    const Matrix<const Scalar> inner = low(pass, scratch, adapter, input(pass, scratch, adapter, x), weights);
    if (is_whole(adapter)) {
      kernels::matmul(pass.space, y, Op::none, inner, Op::transpose, weights[adapter.b], true);
      continue;
    }
    const auto part = as_matrix(scratch.part, pass.num_rows(), adapter.b.rows);
    kernels::matmul(pass.space, part, Op::none, inner, Op::transpose, weights[adapter.b], false);
    kernels::add_columns<Device, Scalar>(pass.space, y, adapter.first, part);
  }
}

template <class Scalar>
void AdaptedProjection<Scalar>::forward(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> y,
                                        Matrix<const Scalar> x, const WeightViews<Scalar>& weights) const {
  base_.forward(pass.space, y, x, weights);
  add_outputs(pass, scratch, y, x, weights);
}

template <class Scalar>
void AdaptedProjection<Scalar>::join(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> y,
                                     Matrix<const Scalar> x, Matrix<const Scalar> branch,
                                     const WeightViews<Scalar>& weights, std::uint64_t dropout_key) const {
  if (pass.dropout == 0.0F) {
    base_.forward_onto(pass.space, y, x, branch, weights);
    return add_outputs(pass, scratch, y, branch, weights);
  }
  forward(pass, scratch, y, branch, weights);
  kernels::dropout(pass.space, y, pass.sample_ids, pass.positions, pass.dropout, dropout_key);
  kernels::residual_add(pass.space, flat(y), flat(x));
}

template <class Scalar>
void AdaptedProjection<Scalar>::forward_gelu(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> y,
                                             Matrix<Scalar> active, Matrix<const Scalar> x,
                                             const WeightViews<Scalar>& weights) const {
  if (adapters_.empty()) return base_.forward_gelu(pass.space, y, active, x, weights);
  forward(pass, scratch, y, x, weights);
  kernels::gelu_forward<Device, Scalar>(pass.space, flat(active), flat(y));
}

template <class Scalar>
void AdaptedProjection<Scalar>::backward_input(const Pass& pass, const AdapterScratch<Scalar>& scratch,
                                               Matrix<Scalar> dx, Matrix<const Scalar> dy,
                                               const WeightViews<Scalar>& weights) const {
  base_.backward_input(pass.space, dx, dy, weights);
  for (const Adapter& adapter : adapters_) {
    const Matrix<const Scalar> inner = dlow(pass, scratch, adapter, part_of(pass, scratch, adapter, dy), weights);
    if (pass.adapter_dropout == 0.0F) {
      kernels::matmul(pass.space, dx, Op::none, inner, Op::none, weights[adapter.a], true);
      continue;
    }
    const auto dinput = as_matrix(scratch.inputs, pass.num_rows(), num_inputs());
    kernels::matmul(pass.space, dinput, Op::none, inner, Op::none, weights[adapter.a], false);
    kernels::dropout(pass.space, dinput, pass.sample_ids, pass.positions, pass.adapter_dropout, adapter.dropout_stream);
    kernels::residual_add<Device, Scalar>(pass.space, flat(dx), flat(dinput));
  }
}

template <class Scalar>
void AdaptedProjection<Scalar>::backward_input_of_gelu(const Pass& pass, const AdapterScratch<Scalar>& scratch,
                                                       Matrix<Scalar> dhidden, Matrix<const Scalar> dy,
                                                       Matrix<const Scalar> hidden,
                                                       const WeightViews<Scalar>& weights) const {
  if (adapters_.empty()) return base_.backward_input_of_gelu(pass.space, dhidden, dy, hidden, weights);
  backward_input(pass, scratch, dhidden, dy, weights);
  kernels::gelu_backward<Device, Scalar>(pass.space, flat(dhidden), flat(dhidden), flat(hidden));
}

template <class Scalar>
void AdaptedProjection<Scalar>::backward_weights(const Pass& pass, const AdapterScratch<Scalar>& scratch,
                                                 const GradientViews& gradients, Matrix<const Scalar> dy,
                                                 Matrix<const Scalar> x, const WeightViews<Scalar>& weights,
                                                 Vector<float> workspace) const {
  base_.backward_weights(pass.space, gradients, dy, x, workspace);
  for (const Adapter& adapter : adapters_) {
    const bool adds = !gradients.begins(adapter.a);
    const Matrix<const Scalar> dy_of_map = part_of(pass, scratch, adapter, dy);
    const Matrix<const Scalar> taken = input(pass, scratch, adapter, x);
    const Matrix<const Scalar> inner = low(pass, scratch, adapter, taken, weights);
    kernels::matmul(pass.space, gradients[adapter.b], Op::transpose, dy_of_map, Op::none, inner, adds);
    const Matrix<const Scalar> dinner = dlow(pass, scratch, adapter, dy_of_map, weights);
    kernels::matmul(pass.space, gradients[adapter.a], Op::transpose, dinner, Op::none, taken, adds);
  }
}

template <class Scalar>
void AdaptedProjection<Scalar>::backward(const Pass& pass, const AdapterScratch<Scalar>& scratch, Matrix<Scalar> dx,
                                         const GradientViews& gradients, Matrix<const Scalar> dy,
                                         Matrix<const Scalar> x, const WeightViews<Scalar>& weights,
                                         Vector<float> workspace) const {
  backward_input(pass, scratch, dx, dy, weights);
  backward_weights(pass, scratch, gradients, dy, x, weights, workspace);
}

#define KOZERO_INSTANTIATE(T) template class AdaptedProjection<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE

}  // namespace kozero::model
