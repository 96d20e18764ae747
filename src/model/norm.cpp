// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/precision.hpp>
#include <kozero/kernels/layernorm.hpp>
#include <kozero/kernels/rmsnorm.hpp>
#include <kozero/model/norm.hpp>
#include <kozero/model/rows.hpp>

namespace kozero::model {

template <class Scalar>
RowStatistics Norm<Scalar>::reserve(MemoryLedger& ledger, const std::string& label, std::int64_t num_rows) const {
  RowStatistics statistics;
  if (shift_) statistics.mean = ledger.take<float>(Memory::activations, label + " mean", num_rows);
  statistics.rstd = ledger.take<float>(Memory::activations, label + " rstd", num_rows);
  return statistics;
}

template <class Scalar>
RowStatistics Norm<Scalar>::carve(Scratch& scratch, std::int64_t num_rows) const {
  RowStatistics statistics;
  if (shift_) statistics.mean = scratch.vector<float>(num_rows);
  statistics.rstd = scratch.vector<float>(num_rows);
  return statistics;
}

template <class Scalar>
void Norm<Scalar>::forward(const Device& space, Matrix<Scalar> y, const RowStatistics& statistics,
                           Matrix<const Scalar> x, Vector<const Scalar> weights) const {
  const auto num_rows = static_cast<std::int64_t>(x.extent(0));
  const auto rstd = slice(statistics.rstd, 0, num_rows);
  if (shift_) {
    kernels::layernorm_forward(space, y, slice(statistics.mean, 0, num_rows), rstd, x, gain_.in(weights),
                               shift_->in(weights), eps_);
  } else {
    kernels::rmsnorm_forward(space, y, rstd, x, gain_.in(weights), eps_);
  }
}

template <class Scalar>
void Norm<Scalar>::backward(const Device& space, Matrix<Scalar> dx, Vector<float> gradient, Matrix<const Scalar> dy,
                            Matrix<const Scalar> x, const RowStatistics& statistics, Vector<const Scalar> weights,
                            Vector<float> workspace) const {
  const auto num_rows = static_cast<std::int64_t>(x.extent(0));
  const auto rstd = slice(statistics.rstd, 0, num_rows);
  const auto dgain = gain_.in(gradient);
  if (shift_) {
    const auto mean = slice(statistics.mean, 0, num_rows);
    kernels::layernorm_backward(space, dx, dgain, shift_->in(gradient), dy, x, gain_.in(weights), mean, rstd,
                                workspace);
  } else {
    kernels::rmsnorm_backward(space, dx, dgain, dy, x, gain_.in(weights), rstd, workspace);
  }
}

#define KOZERO_INSTANTIATE(T) template class Norm<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
