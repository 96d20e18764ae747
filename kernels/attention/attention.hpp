// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention.hpp: causal softmax attention of each head of each sequence, with its gradient.
//   s(i,j) = q(i,:) . k(j,:) / sqrt(D)           p(i,j) = exp(s(i,j) - l(i)) for j <= i, else 0
//   l(i) = log sum_{j<=i} exp(s(i,j))            y(i,:) = sum_j m(i,j) p(i,j) v(j,:)
//   l is the logsumexp; m = 1, or with dropout 0 or 1 / (1 - dropout)
//   qkv (N, (H + 2 KV) D), a row = H query heads | KV key heads | KV value heads      y (N, H D)     logsumexp (B H, T)
// With documents, i and j are positions of one document, and a document's y and dqkv do not depend, in bits, on its
// place in the sequence or on its neighbors: blocks begin at its first token.
// Query head h reads key and value head h / (H / KV): grouped-query attention; KV = H is multi-head attention.
// Backward recomputes p from the logsumexp and overwrites dqkv. No (T, T) matrix of a head exists. The host computes
// blocks of 32 keys by 32 queries on the processor's tile unit, or without one a strip of rows per thread by the
// loops of matmul_loops.cpp (both attention_host.hpp). GPUs use cuDNN (attention_cudnn.hpp), or a team per block of
// rows (attention_teams.hpp), which documents always use. Bits do not depend on the number of threads. Runs on `space`;
// returns without fencing. Dao, Fu, Ermon, Rudra, Re, "FlashAttention", 2022, arXiv:2205.14135; Ainslie et al. 2023,
// arXiv:2305.13245.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <string>

#include <kozero/core/batch.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/inputs.hpp"

namespace kozero::kernels {

/// The list of Documents. Without their Views, since a kernel's arguments must stay below 512 bytes
/// (tests/kernels/gpu_kernels.py).
struct DocumentList {
  const DocumentSpan* spans = nullptr;  ///< on the device
  std::int64_t count = 0;
  std::int64_t longest = 0;

  DocumentList() = default;
  DocumentList(const Documents& documents)
      : spans(documents.spans.data()),
        count(static_cast<std::int64_t>(documents.spans.extent(0))),
        longest(documents.longest) {}
  [[nodiscard]] KOKKOS_FUNCTION bool given() const { return longest > 0; }
};

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t positions = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads
  std::int64_t head_dim = 0;
  float dropout = 0.0F;                       ///< probability of dropping an element of p
  std::uint64_t key = 0;                      ///< of the dropout's random stream
  const std::uint64_t* sample_ids = nullptr;  ///< one per sequence, on the device; read if dropout > 0
  DocumentList documents{};

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t rows() const { return batch * positions; }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t y_columns() const { return heads * head_dim; }
  /// Query heads that share one key head.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t group() const { return heads / kv_heads; }
  [[nodiscard]] KOKKOS_FUNCTION float scale() const { return 1.0F / Kokkos::sqrt(static_cast<float>(head_dim)); }

  // Offsets of the first element of a head in row n of qkv, and of y.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t query(std::int64_t n, std::int64_t h) const {
    return n * qkv_columns() + h * head_dim;
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t key_of(std::int64_t n, std::int64_t kv) const {
    return query(n, heads + kv);
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t value_of(std::int64_t n, std::int64_t kv) const {
    return query(n, heads + kv_heads + kv);
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t output(std::int64_t n, std::int64_t h) const {
    return n * y_columns() + h * head_dim;
  }

  // Documents, each of them a whole sequence if none are given.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t num_documents() const {
    return documents.given() ? documents.count : batch;
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t longest_document() const {
    return documents.given() ? documents.longest : positions;
  }
  [[nodiscard]] KOKKOS_FUNCTION DocumentSpan document(std::int64_t i) const {
    if (documents.given()) return documents.spans[i];
    return {static_cast<std::int32_t>(i), 0, static_cast<std::int32_t>(positions), 0};
  }
  /// The row of a document's first token.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t row_of(const DocumentSpan& document) const {
    return document.sequence * positions + document.first;
  }
  /// The offset of a document's first logsumexp of head h.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t logsumexp_of(const DocumentSpan& document, std::int64_t h) const {
    return (document.sequence * heads + h) * positions + document.first;
  }

  /// m(i,j) of head h of sequence b; i and j are positions of the sequence.
  [[nodiscard]] KOKKOS_FUNCTION float kept(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (!(dropout > 0.0F)) return 1.0F;
    const auto element = static_cast<std::uint64_t>((h * positions + i) * positions + j);
    const bool keeps = uniform_of(philox(key, counter_of(element, sample_ids[b])).x[0]) >= dropout;
    return keeps ? 1.0F / (1.0F - dropout) : 0.0F;
  }
};

/// Whether backward gives the same bits each time. With `fastest`, a back end may use a faster algorithm that does
/// not.
enum class Attention { repeating, fastest };
void choose_attention(Attention attention);

/// The algorithm of attention for this shape (of the documents only `longest` is read) and arrays of T: "AVX-512 BF16",
/// "loops", "cuDNN 9.19.0", or "blocks in shared memory (cuDNN: <why not>)".
template <class T>
std::string attention_by(const AttentionShape& shape);

/// Floats of workspace that attention_forward and attention_backward need for arrays of T.
template <class T>
std::int64_t attention_workspace(const AttentionShape& shape);

template <class Space, class T>
void attention_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                       const AttentionShape& shape, Vector<float> workspace);

template <class Space, class T>
void attention_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                        Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                        Vector<float> workspace);

/// Throws if an array does not have the shape's extents.
template <class Y, class Lse, class Qkv>
void require_attention(const AttentionShape& shape, const Y& y, const Lse& logsumexp, const Qkv& qkv) {
  const auto has = [](const auto& view, std::int64_t rows, std::int64_t columns) {
    return static_cast<std::int64_t>(view.extent(0)) == rows && static_cast<std::int64_t>(view.extent(1)) == columns;
  };
  require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "attention: kv_heads must divide heads");
  require(has(y, shape.rows(), shape.y_columns()) && has(qkv, shape.rows(), shape.qkv_columns()) &&
              has(logsumexp, shape.batch * shape.heads, shape.positions),
          "attention: an array does not have the extents of the shape");
}

}  // namespace kozero::kernels
