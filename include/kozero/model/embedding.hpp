// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// embedding.hpp: tokens to the first residual state.
//   x(n) = dropout(wte(token(n)) + wpe(n % T))          wte (V, C)   wpe (T, C), GPT-2 only
// decode is the same of new rows of cached sequences, each with its own position, without dropout.
// Backward adds into the gradients of both tables; dx is consumed. Runs on the Pass's space; returns without fencing.
#pragma once
#include <optional>

#include <kozero/kernels/row_places.hpp>
#include <kozero/model/config.hpp>
#include <kozero/model/pass.hpp>
#include <kozero/model/tensor_place.hpp>

namespace kozero::model {

template <class Scalar>
class Embedding {
 public:
  Embedding(const Config& config, MatrixPlace tokens, std::optional<MatrixPlace> positions = std::nullopt);

  void forward(const Pass& pass, Matrix<Scalar> x, Vector<const Token> tokens, Vector<const Scalar> weights) const;
  void decode(const Pass& pass, Matrix<Scalar> x, Vector<const Token> tokens, const kernels::RowPlaces& places,
              Vector<const Scalar> weights) const;
  void backward(const Pass& pass, Matrix<Scalar> dx, Vector<const Token> tokens, Vector<float> gradient) const;

 private:
  MatrixPlace tokens_;
  std::optional<MatrixPlace> positions_;
  std::uint64_t dropout_stream_;
};

}  // namespace kozero::model
