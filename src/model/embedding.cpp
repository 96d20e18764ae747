// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/precision.hpp>
#include <kozero/kernels/dropout.hpp>
#include <kozero/kernels/embedding.hpp>
#include <kozero/model/embedding.hpp>
#include <kozero/model/residual_branch.hpp>
#include <kozero/model/rows.hpp>

namespace kozero::model {

template <class Scalar>
Embedding<Scalar>::Embedding(const Config& config, MatrixPlace tokens, std::optional<MatrixPlace> positions)
    : tokens_(tokens), positions_(positions), dropout_stream_(dropout_stream(config.seed, 0, "embedding")) {}

template <class Scalar>
void Embedding<Scalar>::forward(const Pass& pass, Matrix<Scalar> x, Vector<const Token> tokens,
                                Vector<const Scalar> weights) const {
  kernels::embedding_forward(pass.space, x, tokens, tokens_.in(weights));
  if (positions_) kernels::position_forward(pass.space, x, positions_->in(weights), pass.positions);
  if (pass.dropout > 0.0F) {
    kernels::dropout(pass.space, x, pass.sample_ids, pass.positions, pass.dropout, dropout_stream_);
  }
}

template <class Scalar>
void Embedding<Scalar>::decode(const Pass& pass, Matrix<Scalar> x, Vector<const Token> tokens,
                               const kernels::RowPlaces& places, Vector<const Scalar> weights) const {
  kernels::embedding_forward(pass.space, x, tokens, tokens_.in(weights));
  if (positions_) kernels::position_forward_at(pass.space, x, positions_->in(weights), places);
}

template <class Scalar>
void Embedding<Scalar>::backward(const Pass& pass, Matrix<Scalar> dx, Vector<const Token> tokens,
                                 Vector<float> gradient) const {
  if (pass.dropout > 0.0F) {
    kernels::dropout(pass.space, dx, pass.sample_ids, pass.positions, pass.dropout, dropout_stream_);
  }
  const Matrix<const Scalar> arrived = dx;
  kernels::embedding_backward(pass.space, tokens_.in(gradient), arrived, tokens);
  if (positions_) kernels::position_backward(pass.space, positions_->in(gradient), arrived, pass.positions);
}

#define KOZERO_INSTANTIATE(T) template class Embedding<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
