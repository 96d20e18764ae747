// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_strips.cpp: attention on the host, kStrip query rows of a head at a time.
//   forward    S = Q K^T      P = exp(S / sqrt(D) - l)      Y = m P V          Q, Y (R, D)   K, V (n, D)   S, P (R, n)
//   backward   dP = dY V^T    dS = P * (m dP - rowsum(dY * Y))
//              dQ = dS K / sqrt(D)     dK += dS^T Q / sqrt(D)     dV += (m P)^T dY
// A strip that ends at row n needs the first n keys only. Its (R, n) arrays stay in a core's second-level cache; the
// small products are oneDNN's sgemm, which runs on the calling thread alone inside a parallel region. A task of forward
// is a strip; a task of backward is a key head with all the query heads and strips that add into it, in a fixed order.
#include <dnnl.h>

#include <algorithm>

#include <kozero/kernels/attention.hpp>
#include <kozero/kernels/row_max.hpp>
#include <kozero/kernels/rows.hpp>
#include <kozero/kernels/vector_math.hpp>

namespace kozero::kernels {
namespace {

constexpr std::int64_t kStrip = 64;

/// Floats from one row of a strip's scratch to the next: 16 more than needed, so that columns spread over the cache
/// sets.
std::int64_t scratch_row(const AttentionShape& shape) { return (shape.positions + 15) / 16 * 16 + 16; }

std::int64_t scratch_of_thread(const AttentionShape& shape) { return 2 * kStrip * scratch_row(shape); }

/// A row-major matrix inside a larger one.
struct Block {
  const float* data;
  std::int64_t row;  ///< floats from one row to the next
};

/// out (m, n) = alpha op(a) op(b) + beta out.
void small_product(float* out, std::int64_t out_row, char op_a, Block a, char op_b, Block b, std::int64_t m,
                   std::int64_t n, std::int64_t k, float alpha, float beta) {
  const dnnl_status_t status = dnnl_sgemm(op_a, op_b, m, n, k, alpha, a.data, a.row, b.data, b.row, beta, out, out_row);
  if (status != dnnl_success) Kokkos::abort("kozero::attention: oneDNN's sgemm failed");
}

/// Rows [first, end) of query head `head` of sequence `batch`.
struct Strip {
  std::int64_t batch, head, first, end;

  [[nodiscard]] std::int64_t rows() const { return end - first; }
};

/// Calls task(index, scratch) for each index, on all threads, each with scratch of its own.
template <class Space, class Task>
void for_each_task(const Space& space, const char* label, std::int64_t tasks, std::int64_t scratch,
                   Vector<float> workspace, const Task& task) {
  if (tasks == 0) return;
  require(static_cast<std::int64_t>(workspace.extent(0)) >= scratch * space.concurrency(),
          "attention: the workspace is too small");
  using Policy = Kokkos::RangePolicy<Space, Kokkos::Schedule<Kokkos::Dynamic>, Kokkos::IndexType<std::int64_t>>;
  const Kokkos::Experimental::UniqueToken<Space> threads(space);
  Kokkos::parallel_for(label, Policy(space, 0, tasks, Kokkos::ChunkSize(1)), [=](std::int64_t index) {
    const auto thread = threads.acquire();
    task(index, workspace.data() + thread * scratch);
    threads.release(thread);
  });
}

struct Forward {
  AttentionShape shape;
  float* y;
  float* logsumexp;
  const float* qkv;

  /// Turns the scores of row i into probabilities that still have to be divided by their sum; returns the sum.
  [[nodiscard]] float exponentials(const Strip& strip, std::int64_t i, float* scores) const {
    const float scale = shape.scale();
    const std::int64_t keys = i + 1;
    const float largest = scale * lane_max(keys, [=](std::int64_t j) { return scores[j]; });
    simd_loop(keys, [=](std::int64_t j) { scores[j] = fast_exp(scale * scores[j] - largest); });
    const float sum = lane_sum(keys, [=](std::int64_t j) { return scores[j]; });
    logsumexp[(strip.batch * shape.heads + strip.head) * shape.positions + i] = largest + Kokkos::log(sum);
    if (shape.dropout > 0.0F) {
      for (std::int64_t j = 0; j < keys; ++j) scores[j] *= shape.kept(strip.batch, strip.head, i, j);
    }
    std::fill(scores + keys, scores + strip.end, 0.0F);
    return sum;
  }

  void operator()(const Strip& strip, float* scratch) const {
    const std::int64_t row = shape.qkv_columns();
    const std::int64_t score_row = scratch_row(shape);
    const std::int64_t kv = strip.head / shape.group();
    const Block q{qkv + shape.query(strip.batch, strip.head) + strip.first * row, row};
    const Block k{qkv + shape.key_of(strip.batch, kv), row};
    const Block v{qkv + shape.value_of(strip.batch, kv), row};
    small_product(scratch, score_row, 'N', q, 'T', k, strip.rows(), strip.end, shape.head_dim, 1.0F, 0.0F);
    float sums[kStrip];
    for (std::int64_t r = 0; r < strip.rows(); ++r)
      sums[r] = exponentials(strip, strip.first + r, scratch + r * score_row);
    const std::int64_t y_row = shape.y_columns();
    float* const out = y + shape.output(strip.batch, strip.head) + strip.first * y_row;
    small_product(out, y_row, 'N', {scratch, score_row}, 'N', v, strip.rows(), shape.head_dim, strip.end, 1.0F, 0.0F);
    for (std::int64_t r = 0; r < strip.rows(); ++r) {
      const float inverse = 1.0F / sums[r];
      simd_loop(shape.head_dim, [=](std::int64_t d) { out[r * y_row + d] *= inverse; });
    }
  }
};

struct Backward {
  AttentionShape shape;
  float* dqkv;
  const float* dy;
  const float* y;
  const float* logsumexp;
  const float* qkv;

  /// Row i: p holds scores, dp the gradient of m p; afterwards p holds m p, and dp the gradient of the scaled scores.
  void score_gradient(const Strip& strip, std::int64_t i, float* p, float* dp) const {
    const std::int64_t at = shape.output(strip.batch, strip.head) + i * shape.y_columns();
    const float* const y_i = y + at;
    const float* const dy_i = dy + at;
    const float delta = lane_sum(shape.head_dim, [=](std::int64_t d) { return y_i[d] * dy_i[d]; });
    const float lse = logsumexp[(strip.batch * shape.heads + strip.head) * shape.positions + i];
    const float scale = shape.scale();
    const std::int64_t keys = i + 1;
    simd_loop(keys, [=](std::int64_t j) { p[j] = fast_exp(scale * p[j] - lse); });
    if (shape.dropout > 0.0F) {
      for (std::int64_t j = 0; j < keys; ++j) {
        const float kept = shape.kept(strip.batch, strip.head, i, j);
        dp[j] = p[j] * (kept * dp[j] - delta);
        p[j] *= kept;
      }
    } else {
      simd_loop(keys, [=](std::int64_t j) { dp[j] = p[j] * (dp[j] - delta); });
    }
    std::fill(p + keys, p + strip.end, 0.0F);
    std::fill(dp + keys, dp + strip.end, 0.0F);
  }

  /// Writes the strip's dq, and adds into its key head's dk and dv, or overwrites them where `overwrite`.
  void strip_gradient(const Strip& strip, bool overwrite, float* scratch) const {
    const std::int64_t row = shape.qkv_columns();
    const std::int64_t score_row = scratch_row(shape);
    const std::int64_t kv = strip.head / shape.group();
    const std::int64_t query = shape.query(strip.batch, strip.head) + strip.first * row;
    const std::int64_t key = shape.key_of(strip.batch, kv);
    const std::int64_t value = shape.value_of(strip.batch, kv);
    const Block q{qkv + query, row};
    const Block k{qkv + key, row};
    const Block v{qkv + value, row};
    const Block dy_strip{dy + shape.output(strip.batch, strip.head) + strip.first * shape.y_columns(),
                         shape.y_columns()};
    float* const p = scratch;
    float* const ds = scratch + kStrip * score_row;
    const std::int64_t rows = strip.rows();
    const std::int64_t keys = strip.end;
    const float beta = overwrite ? 0.0F : 1.0F;
    small_product(p, score_row, 'N', q, 'T', k, rows, keys, shape.head_dim, 1.0F, 0.0F);
    small_product(ds, score_row, 'N', dy_strip, 'T', v, rows, keys, shape.head_dim, 1.0F, 0.0F);
    for (std::int64_t r = 0; r < rows; ++r)
      score_gradient(strip, strip.first + r, p + r * score_row, ds + r * score_row);
    const Block ds_strip{ds, score_row};
    small_product(dqkv + query, row, 'N', ds_strip, 'N', k, rows, shape.head_dim, keys, shape.scale(), 0.0F);
    small_product(dqkv + key, row, 'T', ds_strip, 'N', q, keys, shape.head_dim, rows, shape.scale(), beta);
    small_product(dqkv + value, row, 'T', {p, score_row}, 'N', dy_strip, keys, shape.head_dim, rows, 1.0F, beta);
  }

  /// All gradients of one key head. The last strip comes first: it reaches every key, so it may overwrite.
  void operator()(std::int64_t batch, std::int64_t kv, float* scratch) const {
    const std::int64_t strips = (shape.positions + kStrip - 1) / kStrip;
    for (std::int64_t member = 0; member < shape.group(); ++member) {
      for (std::int64_t s = strips - 1; s >= 0; --s) {
        const Strip strip{batch, kv * shape.group() + member, s * kStrip, std::min((s + 1) * kStrip, shape.positions)};
        strip_gradient(strip, member == 0 && s == strips - 1, scratch);
      }
    }
  }
};

}  // namespace

std::int64_t attention_workspace(const AttentionShape& shape) {
  return Device().concurrency() * scratch_of_thread(shape);
}

template <class Space, class T>
void attention_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                       const AttentionShape& shape, Vector<float> workspace) {
  require_attention(shape, y, logsumexp, qkv);
  const std::int64_t strips = (shape.positions + kStrip - 1) / kStrip;
  const Forward forward{shape, y.data(), logsumexp.data(), qkv.data()};
  for_each_task(
      space, "kozero::attention_forward", shape.batch * shape.heads * strips, scratch_of_thread(shape), workspace,
      [=](std::int64_t index, float* scratch) {
        const std::int64_t first = index % strips * kStrip;
        const std::int64_t head = index / strips;
        forward({head / shape.heads, head % shape.heads, first, std::min(first + kStrip, shape.positions)}, scratch);
      });
}

template <class Space, class T>
void attention_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                        Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                        Vector<float> workspace) {
  require_attention(shape, y, logsumexp, qkv);
  require_attention(shape, dy, logsumexp, dqkv);
  const Backward backward{shape, dqkv.data(), dy.data(), y.data(), logsumexp.data(), qkv.data()};
  for_each_task(
      space, "kozero::attention_backward", shape.batch * shape.kv_heads, scratch_of_thread(shape), workspace,
      [=](std::int64_t index, float* scratch) { backward(index / shape.kv_heads, index % shape.kv_heads, scratch); });
}

template void attention_forward<Device, float>(const Device&, Matrix<float>, Matrix<float>, Matrix<const float>,
                                               const AttentionShape&, Vector<float>);
template void attention_backward<Device, float>(const Device&, Matrix<float>, Matrix<const float>, Matrix<const float>,
                                                Matrix<const float>, Matrix<const float>, const AttentionShape&,
                                                Vector<float>);

}  // namespace kozero::kernels
