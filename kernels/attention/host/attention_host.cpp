// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_host.cpp: attention in strips of kStrip query rows of a head, by the loops of matmul_loops.cpp, and the
// choice between strips and tiles.
//   forward    S = Q K^T      P = exp(S / sqrt(D) - l)      Y = m P V          Q, Y (R, D)   K, V (n, D)   S, P (R, n)
//   backward   dP = dY V^T    dS = P * (m dP - rowsum(dY * Y))
//              dQ = dS K / sqrt(D)     dK += dS^T Q / sqrt(D)     dV += (m P)^T dY
// A strip that ends at row n needs only the first n keys. Its (R, n) arrays stay in a core's second-level cache. 16-bit
// arrays are copied to float for the products, and sums of dK and dV stay in float until all strips have added. A task
// of forward is a strip; a task of backward is a key head with all its query heads and strips, in a fixed order.
#include <algorithm>
#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <type_traits>

#include <kozero/core/precision.hpp>
#include "kernels/attention/host/attention_host.hpp"
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/reduce.hpp"
#include "kernels/launch/vector_math.hpp"
#include "kernels/matmul/host/matmul_host.hpp"
#include "kernels/matmul/matmul.hpp"

namespace kozero::kernels {

namespace {

constexpr std::int64_t kStrip = 64;

/// Floats from one row of a strip's scratch to the next: 16 more than needed, so that columns spread over the cache
/// sets.
std::int64_t scratch_row(const AttentionShape& shape) { return (shape.positions + 15) / 16 * 16 + 16; }

/// A thread's scratch: two (R, n) arrays, and, if T is not float, float copies of what a strip and its key head read
/// and write.
template <class T>
struct ThreadScratch {
  std::int64_t score_row;
  float *p, *ds;               // (R, n)
  float *query, *output;       // (R, D)
  float *key, *value;          // (n, D)
  float *key_sum, *value_sum;  // (n, D)
  std::int64_t extent;

  ThreadScratch(const AttentionShape& shape, float* memory) : score_row(scratch_row(shape)) {
    Scratch all = Scratch::of_thread(memory);
    const auto take = [&](std::int64_t floats) { return all.take<float>(floats); };
    const std::int64_t of_strip = std::is_same_v<T, float> ? 0 : kStrip * shape.head_dim;
    const std::int64_t of_head = std::is_same_v<T, float> ? 0 : shape.positions * shape.head_dim;
    p = take(kStrip * score_row);
    ds = take(kStrip * score_row);
    query = take(of_strip);
    output = take(of_strip);
    key = take(of_head);
    value = take(of_head);
    key_sum = take(of_head);
    value_sum = take(of_head);
    extent = all.bytes() / static_cast<std::int64_t>(sizeof(float));
  }
};

using FloatsIn = Block<const float>;

/// A matrix (rows, D) in float: itself, or a copy of it at `copy`.
template <class T>
FloatsIn in_float(Block<const T> from, std::int64_t rows, std::int64_t head_dim, float* copy) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* const in = from.data + r * from.row;
      float* const out = copy + r * head_dim;
      simd_loop(head_dim, [=](std::int64_t d) { out[d] = static_cast<float>(in[d]); });
    }
    return {copy, head_dim};
  }
}

/// The output in float of a product for a matrix of T: the matrix, or `copy`, which store() then rounds into it.
template <class T>
Block<float> float_target(Block<T> to, std::int64_t head_dim, float* copy) {
  if constexpr (std::is_same_v<T, float>) {
    return to;
  } else {
    return {copy, head_dim};
  }
}
template <class T>
void store(Block<T> to, std::int64_t rows, std::int64_t head_dim, Block<float> from) {
  if constexpr (std::is_same_v<T, float>) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const in = from.data + r * from.row;
    T* const out = to.data + r * to.row;
    simd_loop(head_dim, [=](std::int64_t d) { out[d] = static_cast<T>(in[d]); });
  }
}

/// Rows [first, end) of query head `head` of sequence `batch`.
struct Strip {
  std::int64_t batch, head, first, end;

  [[nodiscard]] std::int64_t rows() const { return end - first; }
};

template <class T>
struct Forward {
  AttentionShape shape;
  T* y;
  float* logsumexp;
  const T* qkv;

  /// Replaces the scores of row i by probabilities times their sum; returns the sum.
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

  void operator()(const Strip& strip, float* memory) const {
    const ThreadScratch<T> scratch(shape, memory);
    const std::int64_t row = shape.qkv_columns();
    const std::int64_t kv = strip.head / shape.group();
    const std::int64_t dim = shape.head_dim;
    const auto part = [=, this](std::int64_t first) { return Block<const T>{qkv + first, row}; };
    const FloatsIn q =
        in_float(part(shape.query(strip.batch, strip.head) + strip.first * row), strip.rows(), dim, scratch.query);
    const FloatsIn k = in_float(part(shape.key_of(strip.batch, kv)), strip.end, dim, scratch.key);
    const FloatsIn v = in_float(part(shape.value_of(strip.batch, kv)), strip.end, dim, scratch.value);
    const Block<float> p{scratch.p, scratch.score_row};
    multiply_on_this_thread(p, Op::none, q, Op::transpose, k, strip.rows(), strip.end, dim, 1.0F, 0.0F);
    float sums[kStrip];
    for (std::int64_t r = 0; r < strip.rows(); ++r) sums[r] = exponentials(strip, strip.first + r, p.data + r * p.row);
    const std::int64_t y_row = shape.y_columns();
    const Block<T> out{y + shape.output(strip.batch, strip.head) + strip.first * y_row, y_row};
    const Block<float> sum = float_target(out, dim, scratch.output);
    multiply_on_this_thread(sum, Op::none, {p.data, p.row}, Op::none, v, strip.rows(), dim, strip.end, 1.0F, 0.0F);
    for (std::int64_t r = 0; r < strip.rows(); ++r) {
      const float inverse = 1.0F / sums[r];
      const float* const from = sum.data + r * sum.row;
      T* const to = out.data + r * out.row;
      simd_loop(dim, [=](std::int64_t d) { to[d] = static_cast<T>(from[d] * inverse); });
    }
  }
};

template <class T>
struct Backward {
  AttentionShape shape;
  T* dqkv;
  const T* dy;
  const T* y;
  const float* logsumexp;
  const T* qkv;

  /// Shared by all strips of a key head: its keys and values, and the sums of their gradients.
  struct KeyHead {
    FloatsIn key, value;
    Block<float> key_sum, value_sum;
  };

  /// Row i: p has scores, dp the gradient of m p; afterwards p has m p, and dp the gradient of the scaled scores.
  void score_gradient(const Strip& strip, std::int64_t i, float* p, float* dp) const {
    const std::int64_t at = shape.output(strip.batch, strip.head) + i * shape.y_columns();
    const T* const y_i = y + at;
    const T* const dy_i = dy + at;
    const float delta = lane_sum(
        shape.head_dim, [=](std::int64_t d) { return static_cast<float>(y_i[d]) * static_cast<float>(dy_i[d]); });
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

  /// Writes the strip's dq, and adds into its key head's sums, or overwrites them if `overwrite`.
  void strip_gradient(const Strip& strip, bool overwrite, const KeyHead& head, const ThreadScratch<T>& scratch) const {
    const std::int64_t row = shape.qkv_columns();
    const std::int64_t y_row = shape.y_columns();
    const std::int64_t dim = shape.head_dim;
    const std::int64_t query = shape.query(strip.batch, strip.head) + strip.first * row;
    const std::int64_t output = shape.output(strip.batch, strip.head) + strip.first * y_row;
    const std::int64_t rows = strip.rows();
    const std::int64_t keys = strip.end;
    const FloatsIn q = in_float(Block<const T>{qkv + query, row}, rows, dim, scratch.query);
    const FloatsIn dy_strip = in_float(Block<const T>{dy + output, y_row}, rows, dim, scratch.output);
    const Block<float> p{scratch.p, scratch.score_row};
    const Block<float> ds{scratch.ds, scratch.score_row};
    const FloatsIn p_in{p.data, p.row};
    const FloatsIn ds_in{ds.data, ds.row};
    const float beta = overwrite ? 0.0F : 1.0F;
    multiply_on_this_thread(p, Op::none, q, Op::transpose, head.key, rows, keys, dim, 1.0F, 0.0F);
    multiply_on_this_thread(ds, Op::none, dy_strip, Op::transpose, head.value, rows, keys, dim, 1.0F, 0.0F);
    for (std::int64_t r = 0; r < rows; ++r)
      score_gradient(strip, strip.first + r, p.data + r * p.row, ds.data + r * ds.row);
    multiply_on_this_thread(head.key_sum, Op::transpose, ds_in, Op::none, q, keys, dim, rows, shape.scale(), beta);
    multiply_on_this_thread(head.value_sum, Op::transpose, p_in, Op::none, dy_strip, keys, dim, rows, 1.0F, beta);
    const Block<T> dq{dqkv + query, row};
    const Block<float> dq_sum = float_target(dq, dim, scratch.query);  // q is not read any more
    multiply_on_this_thread(dq_sum, Op::none, ds_in, Op::none, head.key, rows, dim, keys, shape.scale(), 0.0F);
    store(dq, rows, dim, dq_sum);
  }

  /// All gradients of one key head. The last strip comes first, since it has every key and so may overwrite.
  void operator()(std::int64_t batch, std::int64_t kv, float* memory) const {
    const ThreadScratch<T> scratch(shape, memory);
    const std::int64_t row = shape.qkv_columns();
    const std::int64_t dim = shape.head_dim;
    const std::int64_t key = shape.key_of(batch, kv);
    const std::int64_t value = shape.value_of(batch, kv);
    const Block<T> dkey{dqkv + key, row};
    const Block<T> dvalue{dqkv + value, row};
    const KeyHead head{in_float(Block<const T>{qkv + key, row}, shape.positions, dim, scratch.key),
                       in_float(Block<const T>{qkv + value, row}, shape.positions, dim, scratch.value),
                       float_target(dkey, dim, scratch.key_sum), float_target(dvalue, dim, scratch.value_sum)};
    const std::int64_t strips = (shape.positions + kStrip - 1) / kStrip;
    for (std::int64_t member = 0; member < shape.group(); ++member) {
      for (std::int64_t s = strips - 1; s >= 0; --s) {
        const Strip strip{batch, kv * shape.group() + member, s * kStrip, std::min((s + 1) * kStrip, shape.positions)};
        strip_gradient(strip, member == 0 && s == strips - 1, head, scratch);
      }
    }
    store(dkey, shape.positions, dim, head.key_sum);
    store(dvalue, shape.positions, dim, head.value_sum);
  }
};

}  // namespace

template <class T>
std::int64_t attention_strips_scratch(const AttentionShape& shape) {
  return ThreadScratch<T>(shape, nullptr).extent;
}

template <class Space, class T>
void attention_strips_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                              const AttentionShape& shape, Vector<float> workspace) {
  require_attention(shape, y, logsumexp, qkv);
  const std::int64_t strips = (shape.positions + kStrip - 1) / kStrip;
  const Forward<T> forward{shape, y.data(), logsumexp.data(), qkv.data()};
  for_each_task(
      space, "kozero::attention_forward", shape.batch * shape.heads * strips, attention_strips_scratch<T>(shape),
      workspace, [=](std::int64_t index, float* scratch) {
        const std::int64_t first = index % strips * kStrip;
        const std::int64_t head = index / strips;
        forward({head / shape.heads, head % shape.heads, first, std::min(first + kStrip, shape.positions)}, scratch);
      });
}

template <class Space, class T>
void attention_strips_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                               Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                               Vector<float> workspace) {
  require_attention(shape, y, logsumexp, qkv);
  require_attention(shape, dy, logsumexp, dqkv);
  const Backward<T> backward{shape, dqkv.data(), dy.data(), y.data(), logsumexp.data(), qkv.data()};
  for_each_task(
      space, "kozero::attention_backward", shape.batch * shape.kv_heads, attention_strips_scratch<T>(shape), workspace,
      [=](std::int64_t index, float* scratch) { backward(index / shape.kv_heads, index % shape.kv_heads, scratch); });
}

#define KOZERO_INSTANTIATE(T)                                                                                     \
  template std::int64_t attention_strips_scratch<T>(const AttentionShape&);                                       \
  template void attention_strips_forward<Device, T>(const Device&, Matrix<T>, Matrix<float>, Matrix<const T>,     \
                                                    const AttentionShape&, Vector<float>);                        \
  template void attention_strips_backward<Device, T>(const Device&, Matrix<T>, Matrix<const T>, Matrix<const T>,  \
                                                     Matrix<const float>, Matrix<const T>, const AttentionShape&, \
                                                     Vector<float>);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE

void choose_attention(Attention /*attention*/) {}  // the fastest algorithm repeats

template <class T>
std::string attention_by(const AttentionShape& /*shape*/) {
  return name_of(tile_unit_in_use<T>());  // also if oneDNN multiplies matrices
}

template <class T>
std::int64_t attention_workspace(const AttentionShape& shape) {
  if (tile_unit_in_use<T>() == nullptr) return workspace_of_threads(attention_strips_scratch<T>(shape));
  return workspace_of_threads(
      std::max(attention_tiles_forward_scratch<T>(shape), attention_tiles_backward_scratch<T>(shape)));
}

template <class Space, class T>
void attention_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                       const AttentionShape& shape, Vector<float> workspace) {
  const Kokkos::Profiling::ScopedRegion region("kozero::attention_forward");
  const TileUnit* const unit = tile_unit_in_use<T>();
  if (unit == nullptr) {
    attention_strips_forward(space, y, logsumexp, qkv, shape, workspace);
  } else {
    attention_tiles_forward(space, *unit, y, logsumexp, qkv, shape, workspace);
  }
}

template <class Space, class T>
void attention_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                        Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                        Vector<float> workspace) {
  const Kokkos::Profiling::ScopedRegion region("kozero::attention_backward");
  const TileUnit* const unit = tile_unit_in_use<T>();
  if (unit == nullptr) {
    attention_strips_backward(space, dqkv, dy, y, logsumexp, qkv, shape, workspace);
  } else {
    attention_tiles_backward(space, *unit, dqkv, dy, y, logsumexp, qkv, shape, workspace);
  }
}

#define KOZERO_INSTANTIATE(T)                                                                              \
  template std::string attention_by<T>(const AttentionShape&);                                             \
  template std::int64_t attention_workspace<T>(const AttentionShape&);                                     \
  template void attention_forward<Device, T>(const Device&, Matrix<T>, Matrix<float>, Matrix<const T>,     \
                                             const AttentionShape&, Vector<float>);                        \
  template void attention_backward<Device, T>(const Device&, Matrix<T>, Matrix<const T>, Matrix<const T>,  \
                                              Matrix<const float>, Matrix<const T>, const AttentionShape&, \
                                              Vector<float>);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
