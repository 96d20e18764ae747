// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// residual_branch.hpp: where a branch joins the residual stream, and where its gradient leaves it.
//   join:  y = x + dropout(last(branch))          leave:  dbranch = dropout(dy), the same elements dropped
// Without dropout the branch's last projection adds x itself, and `leave` copies nothing: it returns dy. Runs on the
// Pass's space; returns without fencing.
#pragma once
#include <string>

#include <kozero/model/pass.hpp>
#include <kozero/model/projection.hpp>

namespace kozero::model {

template <class Scalar>
void join(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x, const Projection<Scalar>& last,
          Matrix<const Scalar> branch, Vector<const Scalar> weights, std::uint64_t dropout_key);

/// `dbranch` is memory for the result, used only where the pass drops; its extent may be zero otherwise.
template <class Scalar>
Matrix<const Scalar> leave(const Pass& pass, Matrix<Scalar> dbranch, Matrix<const Scalar> dy,
                           std::uint64_t dropout_key);

/// The key of the random stream of one dropout site: "dropout.<layer>.<site>".
std::uint64_t dropout_stream(std::uint64_t seed, std::int64_t layer, const std::string& site);

}  // namespace kozero::model
