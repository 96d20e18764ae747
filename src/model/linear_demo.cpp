// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// linear_demo.cpp: linear regression of synthetic data, the smallest model that can be sharded.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <kozero/core/precision.hpp>
#include <kozero/core/random.hpp>
#include <kozero/model/layer.hpp>
#include "kernels/launch/fill.hpp"
#include "kernels/launch/reduce.hpp"
#include "kernels/launch/row_blocks.hpp"
#include "src/model/architectures.hpp"
#include "src/model/frozen_tensors.hpp"
#include "src/model/linear_demo.hpp"

namespace kozero::model {
namespace {

/// Standard normals of `key` from element `first` on, times `deviation`.
template <class Scalar>
void draw(std::uint64_t key, std::uint64_t first, double deviation, const HostVector<Scalar>& out) {
  for (std::size_t i = 0; i < out.extent(0); ++i) {
    out(i) = static_cast<Scalar>(static_cast<float>(deviation * normal_at(key, first + i)));
  }
}

template <class Scalar>
double largest_difference(const HostVector<Scalar>& a, const HostVector<Scalar>& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.extent(0); ++i) {
    largest = std::max(largest, std::abs(double{static_cast<float>(a(i))} - double{static_cast<float>(b(i))}));
  }
  return largest;
}

[[noreturn]] void refuse_tokens() {
  throw Error(Failure::deck, "model.arch = \"linear\" has no tokens to generate: use a language model");
}

}  // namespace

void resolve_linear(Config& config) {
  config.seq = 1;
  config.layers = 1;
  config.tie_embeddings = false;
  if (config.ffn == 0) config.ffn = config.dim;
}

template <class Scalar>
LinearDemo<Scalar>::LinearDemo(const Config& config, ParameterTable table, MatrixRef weight, VectorRef bias)
    : config_(config),
      table_(std::move(table)),
      weight_(weight),
      bias_(bias),
      projection_(Orientation::output_input, weight, bias) {
  freeze_tensors(table_, config_);
}

template <class Scalar>
void LinearDemo<Scalar>::reserve(MemoryLedger& ledger, std::int64_t micro_batch, Recompute /*recompute*/,
                                 std::int64_t /*seq*/) {
  const std::int64_t dim = config_.dim;
  const std::int64_t unit = table_.unit(0).extent;
  x_ = ledger.take<Scalar>(Memory::activations, "inputs", micro_batch, dim);
  dx_ = ledger.take<Scalar>(Memory::activations, "input gradient", micro_batch, dim);
  difference_ = ledger.take<Scalar>(Memory::activations, "difference", micro_batch, config_.ffn);
  target_ = ledger.take<Scalar>(Memory::activations, "target", micro_batch, config_.ffn);
  negated_teacher_ = ledger.take<Scalar>(Memory::workspace, "teacher", unit);
  reduction_ = ledger.take<float>(Memory::workspace, "row sums", kernels::row_reduction_workspace(config_.ffn));
  const auto host_bytes = (unit + micro_batch * dim) * static_cast<std::int64_t>(sizeof(Scalar)) +
                          micro_batch * static_cast<std::int64_t>(sizeof(std::uint64_t));
  ledger.book(Memory::staging, "teacher and inputs", host_bytes);
  if (ledger.plans_only()) return;

  sample_ids_ = Staging<std::uint64_t>("sample_ids", static_cast<std::size_t>(micro_batch));
  drawn_ = Staging<Scalar>("drawn", static_cast<std::size_t>(micro_batch * dim));
  teacher_ = Staging<Scalar>("teacher", static_cast<std::size_t>(unit));
  const HostVector<Scalar> teacher(teacher_.data(), teacher_.extent(0));
  draw(stream_key(config_.seed, "linear.weight"), 0, 1.0 / std::sqrt(static_cast<double>(dim)),
       flat(weight_.in(teacher)));
  draw(stream_key(config_.seed, "linear.bias"), 0, 1.0, bias_.in(teacher));
  Kokkos::deep_copy(negated_teacher_, teacher);
  kernels::scale(Device(), negated_teacher_, -1.0F);
}

template <class Scalar>
void LinearDemo<Scalar>::draw_inputs(const Batch& batch) {
  const std::int64_t num_samples = batch.num_sequences();
  const std::int64_t dim = config_.dim;
  const auto key = stream_key(config_.seed, "linear.inputs");
  const HostVector<std::uint64_t> ids(sample_ids_.data(), static_cast<std::size_t>(num_samples));
  const HostVector<Scalar> drawn(drawn_.data(), static_cast<std::size_t>(num_samples * dim));
  Kokkos::deep_copy(ids, batch.sample_ids);
  for (std::int64_t n = 0; n < num_samples; ++n) {
    draw(key, ids(n) * static_cast<std::uint64_t>(dim), 1.0, slice(drawn, n * dim, dim));
  }
  Kokkos::deep_copy(flat(rows(x_, 0, num_samples)), drawn);
}

template <class Scalar>
double LinearDemo<Scalar>::forward(const Batch& batch, const WeightViews<Scalar>& weights) {
  const std::int64_t num_samples = batch.num_sequences();
  const auto x = rows(x_, 0, num_samples);
  const auto difference = rows(difference_, 0, num_samples);
  const auto target = rows(target_, 0, num_samples);
  const Device space;
  draw_inputs(batch);
  projection_.forward(space, difference, x, weights);
  projection_.forward(space, target, x, WeightViews<Scalar>(negated_teacher_));
  kernels::residual_add(space, flat(difference), flat(target));
  return kernels::sum_of_squares(space, flat(difference)) / (2.0 * static_cast<double>(config_.ffn));
}

template <class Scalar>
void LinearDemo<Scalar>::forward_backward(ParameterAccess<Scalar>& access, const Batch& batch, float loss_factor,
                                          double* loss) {
  const std::int64_t num_samples = batch.num_sequences();
  const auto difference = rows(difference_, 0, num_samples);
  const Device space;
  const WeightViews<Scalar> weights(access.acquire(0));
  *loss = forward(batch, weights);
  kernels::scale(space, flat(difference), loss_factor / static_cast<float>(config_.ffn));
  projection_.backward(space, rows(dx_, 0, num_samples), {table_, 0, access.gradient(0)}, difference,
                       rows(x_, 0, num_samples), weights, reduction_);
  access.release(0);
  access.gradient_ready(0);
}

template <class Scalar>
double LinearDemo<Scalar>::evaluate(ParameterAccess<Scalar>& access, const Batch& batch) {
  const double loss = forward(batch, WeightViews<Scalar>(access.acquire(0)));
  access.release(0);
  return loss;
}

template <class Scalar>
void LinearDemo<Scalar>::next_token_logits(ParameterAccess<Scalar>& /*access*/, Matrix<const Token> /*inputs*/,
                                           std::int64_t /*num_tokens*/, Vector<float> /*logits*/) {
  refuse_tokens();
}

template <class Scalar>
void LinearDemo<Scalar>::reserve_cache(MemoryLedger& /*ledger*/, const CacheExtents& /*extents*/) {
  refuse_tokens();
}

template <class Scalar>
void LinearDemo<Scalar>::decode(ParameterAccess<Scalar>& /*access*/, const TokenRows& /*rows*/,
                                Matrix<float> /*logits*/) {
  refuse_tokens();
}

template <class Scalar>
std::string LinearDemo<Scalar>::closing_line(ParameterAccess<Scalar>& access) {
  const auto weights = access.acquire(0);
  const Staging<Scalar> copy("trained", weights.extent(0));
  Kokkos::deep_copy(copy, weights);
  access.release(0);
  const HostVector<Scalar> trained(copy.data(), copy.extent(0));
  const HostVector<Scalar> teacher(teacher_.data(), teacher_.extent(0));
  const double of_weight = largest_difference(flat(weight_.in(trained)), flat(weight_.in(teacher)));
  const double of_bias = largest_difference(bias_.in(trained), bias_.in(teacher));
  std::array<char, 96> line{};
  std::snprintf(line.data(), line.size(), "largest |W - W*| = %.3g, largest |b - b*| = %.3g", of_weight, of_bias);
  return line.data();
}

template <class Scalar>
double LinearDemo<Scalar>::flops_per_token() const {
  return 6.0 * static_cast<double>(config_.dim * config_.ffn);
}

template <class Scalar>
std::unique_ptr<Model<Scalar>> make_linear(const Config& config) {
  ParameterTable table;
  table.add_unit("linear", 0);
  const auto weight = add_matrix(table, "weight", config.ffn, config.dim);
  const auto bias = add_vector(table, "bias", config.ffn, Initial::zeros);
  return std::make_unique<LinearDemo<Scalar>>(config, std::move(table), weight, bias);
}

#define KOZERO_INSTANTIATE(T)   \
  template class LinearDemo<T>; \
  template std::unique_ptr<Model<T>> make_linear<T>(const Config&);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
