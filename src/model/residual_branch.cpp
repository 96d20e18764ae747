// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/precision.hpp>
#include <kozero/core/random.hpp>
#include <kozero/kernels/dropout.hpp>
#include <kozero/kernels/residual.hpp>
#include <kozero/model/residual_branch.hpp>
#include <kozero/model/rows.hpp>

namespace kozero::model {

template <class Scalar>
void join(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x, const Projection<Scalar>& last,
          Matrix<const Scalar> branch, Vector<const Scalar> weights, std::uint64_t dropout_key) {
  if (pass.dropout == 0.0F) return last.forward_onto(pass.space, y, x, branch, weights);
  last.forward(pass.space, y, branch, weights);
  kernels::dropout(pass.space, y, pass.sample_ids, pass.positions, pass.dropout, dropout_key);
  kernels::residual_add(pass.space, flat(y), flat(x));
}

template <class Scalar>
Matrix<const Scalar> leave(const Pass& pass, Matrix<Scalar> dbranch, Matrix<const Scalar> dy,
                           std::uint64_t dropout_key) {
  if (pass.dropout == 0.0F) return dy;
  Kokkos::deep_copy(pass.space, dbranch, dy);
  kernels::dropout(pass.space, dbranch, pass.sample_ids, pass.positions, pass.dropout, dropout_key);
  return dbranch;
}

std::uint64_t dropout_stream(std::uint64_t seed, std::int64_t layer, const std::string& site) {
  return stream_key(seed, "dropout." + std::to_string(layer) + "." + site);
}

#define KOZERO_INSTANTIATE(T)                                                                           \
  template void join<T>(const Pass&, Matrix<T>, Matrix<const T>, const Projection<T>&, Matrix<const T>, \
                        Vector<const T>, std::uint64_t);                                                \
  template Matrix<const T> leave<T>(const Pass&, Matrix<T>, Matrix<const T>, std::uint64_t);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
