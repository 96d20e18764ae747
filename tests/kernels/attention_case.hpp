// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_case.hpp: attention by plain loops in double, and the algorithms of this processor to compare with them.
#pragma once
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <support/cut_documents.hpp>

#include "kernels/attention/cuda/attention_teams_backward.hpp"

#include "reference.hpp"

#if defined(KOKKOS_ENABLE_OPENMP)
#include <omp.h>
#endif
#if !defined(KOKKOS_ENABLE_CUDA)
#include "kernels/attention/host/attention_host.hpp"
#endif

namespace kozero::kernels::attention_case {

using reference::Filled;
using tests::CutDocuments;

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

struct Attended {
  std::vector<double> y;
  std::vector<double> logsumexp;
};

/// A query: row n of (B, H, T). It sees the positions from its document's start to its own.
struct QueryRow {
  std::int64_t batch, head, kv, position;
  std::int64_t start;  ///< of its document
  std::int64_t first;  ///< the row of position 0 in qkv and y

  QueryRow(const AttentionShape& shape, const std::vector<std::int64_t>& starts, std::int64_t n)
      : batch(n / shape.positions / shape.heads),
        head(n / shape.positions % shape.heads),
        kv(head / shape.group()),
        position(n % shape.positions),
        start(starts.empty() ? 0 : starts[at(batch * shape.positions + position)]),
        first(batch * shape.positions) {}
};

/// p(i, 0..i) of one head, and its logsumexp. `p` is 0 before the document's start.
inline std::vector<double> probabilities(const AttentionShape& shape, const std::vector<double>& qkv,
                                         const QueryRow& row, double& lse) {
  std::vector<double> p(at(row.position + 1));
  double sum = 0.0;
  for (std::int64_t j = row.start; j <= row.position; ++j) {
    double score = 0.0;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      score += qkv[at(shape.query(row.first + row.position, row.head) + d)] *
               qkv[at(shape.key_of(row.first + j, row.kv) + d)];
    }
    p[at(j)] = std::exp(score / std::sqrt(static_cast<double>(shape.head_dim)));
    sum += p[at(j)];
  }
  for (double& x : p) x /= sum;
  lse = std::log(sum);
  return p;
}

/// `starts`: CutDocuments'; empty: each sequence is one document.
inline Attended plain_attention(const AttentionShape& shape, const std::vector<double>& qkv,
                                const std::vector<std::int64_t>& starts) {
  Attended result{std::vector<double>(at(shape.rows() * shape.y_columns())),
                  std::vector<double>(at(shape.batch * shape.heads * shape.positions))};
  for (std::int64_t n = 0; n < shape.batch * shape.heads * shape.positions; ++n) {
    const QueryRow row(shape, starts, n);
    const std::vector<double> p = probabilities(shape, qkv, row, result.logsumexp[at(n)]);
    for (std::int64_t j = row.start; j <= row.position; ++j) {
      const double weight = p[at(j)] * static_cast<double>(shape.kept(row.batch, row.head, row.position, j));
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        result.y[at(shape.output(row.first + row.position, row.head) + d)] +=
            weight * qkv[at(shape.value_of(row.first + j, row.kv) + d)];
      }
    }
  }
  return result;
}

/// The gradient of sum(dy * y) with respect to qkv.
inline std::vector<double> plain_gradient(const AttentionShape& shape, const std::vector<double>& qkv,
                                          const std::vector<float>& dy, const std::vector<std::int64_t>& starts) {
  std::vector<double> dqkv(qkv.size());
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  for (std::int64_t n = 0; n < shape.batch * shape.heads * shape.positions; ++n) {
    const QueryRow row(shape, starts, n);
    double lse = 0.0;
    const std::vector<double> p = probabilities(shape, qkv, row, lse);
    const std::int64_t out = shape.output(row.first + row.position, row.head);
    const std::int64_t query = shape.query(row.first + row.position, row.head);
    std::vector<double> dp(p.size());
    double mean = 0.0;
    for (std::int64_t j = row.start; j <= row.position; ++j) {
      const std::int64_t value = shape.value_of(row.first + j, row.kv);
      const auto kept = static_cast<double>(shape.kept(row.batch, row.head, row.position, j));
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        const auto dy_d = static_cast<double>(dy[at(out + d)]);
        dp[at(j)] += kept * dy_d * qkv[at(value + d)];
        dqkv[at(value + d)] += kept * p[at(j)] * dy_d;
      }
      mean += p[at(j)] * dp[at(j)];
    }
    for (std::int64_t j = row.start; j <= row.position; ++j) {
      const double ds = scale * p[at(j)] * (dp[at(j)] - mean);
      const std::int64_t key = shape.key_of(row.first + j, row.kv);
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        dqkv[at(query + d)] += ds * qkv[at(key + d)];
        dqkv[at(key + d)] += ds * qkv[at(query + d)];
      }
    }
  }
  return dqkv;
}

/// The arrays of one forward and backward, on the device.
template <class T>
struct Arrays {
  Matrix<T> y;
  Matrix<float> logsumexp;
  Matrix<const T> qkv;
  Matrix<T> dqkv;
  Matrix<const T> dy;
  AttentionShape shape;
  Vector<float> workspace;
};

/// A kernel: forward, then backward.
template <class T>
struct Algorithm {
  std::string name;
  std::function<void(const Device&, const Arrays<T>&)> run;
};

/// The algorithm that the program itself uses.
template <class T>
Algorithm<T> own_way() {
  return {"attention.hpp", [](const Device& space, const Arrays<T>& a) {
            attention_forward(space, a.y, a.logsumexp, a.qkv, a.shape, a.workspace);
            attention_backward(space, a.dqkv, a.dy, MatrixIn<T>(a.y), Matrix<const float>(a.logsumexp), a.qkv, a.shape,
                               a.workspace);
          }};
}

template <class Threads, class T>
Algorithm<T> teams_of(const char* name) {
  return {name, [](const Device& space, const Arrays<T>& a) {
            attention_teams_forward<Threads>(space, a.y, a.logsumexp, a.qkv, a.shape);
            attention_teams_backward<Threads>(space, a.dqkv, a.dy, MatrixIn<T>(a.y), Matrix<const float>(a.logsumexp),
                                              a.qkv, a.shape, a.workspace);
          }};
}

#if !defined(KOKKOS_ENABLE_CUDA)
template <class T>
Algorithm<T> algorithm_of(const TileUnit& unit) {
  return {unit.name, [unit](const Device& space, const Arrays<T>& a) {
            attention_tiles_forward(space, unit, a.y, a.logsumexp, a.qkv, a.shape, a.workspace);
            attention_tiles_backward(space, unit, a.dqkv, a.dy, MatrixIn<T>(a.y), Matrix<const float>(a.logsumexp),
                                     a.qkv, a.shape, a.workspace);
          }};
}
#endif

/// All algorithms that this processor can run: the program's own, by teams, and on a host by each tile unit.
template <class T>
std::vector<Algorithm<T>> algorithms() {
  std::vector<Algorithm<T>> all{own_way<T>()};
  all.push_back(teams_of<ThreadsOn<Device>, T>("teams"));
#if !defined(KOKKOS_ENABLE_CUDA)
  if (Kokkos::DefaultHostExecutionSpace().concurrency() >= 2) {  // threads that wait for each other, as on a GPU
    all.push_back(teams_of<TeamThreads<2, 1>, T>("teams of two, by rows"));
    all.push_back(teams_of<TeamThreads<1, 2>, T>("teams of two, by columns"));
  }
  for (const TileUnit& unit : tile_units<T>()) all.push_back(algorithm_of<T>(unit));
  static const TileUnit base = unit_of_floats("base", LineKind::base, base::product_of_floats);
  if (std::string(tile_units<T>().back().name) != base.name) all.push_back(algorithm_of<T>(base));
#endif
  return all;
}

/// Floats of workspace that are enough for every algorithm.
template <class T>
std::int64_t largest_workspace(const AttentionShape& shape) {
  std::int64_t most = std::max(attention_workspace<T>(shape), shape.batch * shape.heads * shape.positions);
#if !defined(KOKKOS_ENABLE_CUDA)
  for (const TileUnit& unit : tile_units<T>()) {
    most = std::max({most, workspace_of_threads(attention_tiles_forward_scratch<T>(unit, shape)),
                     workspace_of_threads(attention_tiles_backward_scratch<T>(unit, shape))});
  }
#endif
  return most;
}

struct Results {
  std::vector<float> y, logsumexp, dqkv;
};

inline constexpr std::int64_t kBeyond = 64;  // elements after the end of the writable range

/// The first `extent` values. Checks that the elements after them are still NaN.
inline std::vector<float> within(std::vector<float> values, std::int64_t extent) {
  for (std::size_t i = at(extent); i < values.size(); ++i) REQUIRE(std::isnan(values[i]));
  values.resize(at(extent));
  return values;
}

/// One run of forward and backward. Outputs and workspace start as NaN, so all must be written. The workspace is not
/// aligned to a cache line.
template <class T>
Results run(const Device& space, const Algorithm<T>& algorithm, const AttentionShape& shape,
            const std::vector<float>& input, const std::vector<float>& gradient) {
  const std::int64_t rows = shape.rows();
  const std::int64_t lines = shape.batch * shape.heads;
  const auto unset = [](std::int64_t extent) {
    return std::vector<float>(at(extent), std::numeric_limits<float>::quiet_NaN());
  };
  const std::int64_t floats = largest_workspace<T>(shape);
  const Filled<T> qkv(input), dy(gradient);
  const Filled<T> dqkv(unset(rows * shape.qkv_columns() + kBeyond)), y(unset(rows * shape.y_columns() + kBeyond));
  const Filled<float> logsumexp(unset(lines * shape.positions + kBeyond)), workspace(unset(floats + 1));
  algorithm.run(space, {y.matrix(rows, shape.y_columns()), logsumexp.matrix(lines, shape.positions),
                        qkv.input(rows, shape.qkv_columns()), dqkv.matrix(rows, shape.qkv_columns()),
                        dy.input(rows, shape.y_columns()), shape, slice(workspace.vector(), 1, floats)});
  space.fence();
  return {within(y.values(), rows * shape.y_columns()), within(logsumexp.values(), lines * shape.positions),
          within(dqkv.values(), rows * shape.qkv_columns())};
}

template <class T = float>
struct Inputs {
  explicit Inputs(const AttentionShape& shape)
      : qkv(reference::numbers<T>(shape.rows() * shape.qkv_columns(), 5)),
        dy(reference::numbers<T>(shape.rows() * shape.y_columns(), 6)) {}
  std::vector<float> qkv, dy;
};

inline double largest_of(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// The bound for differences of results in T; `tolerance` is the bound for float. In 16 bits, P and the gradient of the
/// scores are rounded before they are summed, and y before delta is computed from it. Each of these roundings adds
/// about as much error as the rounding of the result.
template <class T>
double tolerance_in(const std::vector<double>& expected, double tolerance) {
  return std::is_same_v<T, float> ? tolerance : 2.0 * reference::kRounding<T> * largest_of(expected);
}

/// Every algorithm against the loops. With dropout, `ids` has the sample ids of the sequences. Without `lengths` each
/// sequence is one document.
template <class T>
void check(AttentionShape shape, const Inputs<T>& in, const std::vector<std::uint64_t>& ids = {},
           const tests::DocumentLengths& lengths = {}) {
  const Filled<std::uint64_t> device_ids(ids);
  AttentionShape on_device = shape;
  on_device.sample_ids = device_ids.vector().data();
  const CutDocuments documents(lengths);
  on_device.documents = documents.view();
  shape.sample_ids = ids.data();
  const std::vector<double> qkv = reference::in_double(in.qkv);
  const Attended expected = plain_attention(shape, qkv, documents.starts());
  const std::vector<double> gradient = plain_gradient(shape, qkv, in.dy, documents.starts());
  for (const Algorithm<T>& algorithm : algorithms<T>()) {
    CAPTURE(algorithm.name, shape.batch, shape.positions, shape.heads, shape.kv_heads, shape.head_dim, shape.dropout);
    const Results got = run<T>(Device(), algorithm, on_device, in.qkv, in.dy);
    reference::require_near(got.y, expected.y, tolerance_in<T>(expected.y, 2e-6));
    reference::require_near(got.logsumexp, expected.logsumexp, 1e-6 * std::max(2.0, largest_of(expected.logsumexp)));
    reference::require_near(got.dqkv, gradient, tolerance_in<T>(gradient, 2e-5));
  }
}
template <class T>
void check(const AttentionShape& shape, const std::vector<std::uint64_t>& ids = {},
           const tests::DocumentLengths& lengths = {}) {
  check<T>(shape, Inputs<T>(shape), ids, lengths);
}

#if defined(KOKKOS_ENABLE_OPENMP) && !defined(KOKKOS_ENABLE_CUDA)
/// Every algorithm's results on one thread are those on all, in bits.
template <class T, class In>
void require_same_bits_on_one_thread(const AttentionShape& shape, const In& in) {
  const int threads = omp_get_max_threads();
  for (const Algorithm<T>& algorithm : algorithms<T>()) {
    if (algorithm.name.starts_with("teams of two")) continue;
    CAPTURE(algorithm.name);
    const Results all = run<T>(Device(), algorithm, shape, in.qkv, in.dy);
    omp_set_num_threads(1);
    const Results one = run<T>(Kokkos::OpenMP(1), algorithm, shape, in.qkv, in.dy);
    omp_set_num_threads(threads);
    REQUIRE(reference::same_bits(all.y, one.y));
    REQUIRE(reference::same_bits(all.logsumexp, one.logsumexp));
    REQUIRE(reference::same_bits(all.dqkv, one.dqkv));
  }
}
#endif

inline AttentionShape shape_of(std::int64_t batch, std::int64_t positions, std::int64_t heads, std::int64_t kv_heads,
                               std::int64_t head_dim) {
  return {batch, positions, heads, kv_heads, head_dim};
}

}  // namespace kozero::kernels::attention_case
