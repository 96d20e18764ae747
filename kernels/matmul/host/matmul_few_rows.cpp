// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_few_rows.cpp: the product of a few rows, as tasks that are scheduled dynamically over the threads. The ranges
// of the sums depend only on the shape.
#include <algorithm>
#include <type_traits>

#include <kozero/core/precision.hpp>
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/vector_math.hpp"
#include "kernels/matmul/host/matmul_host.hpp"

namespace kozero::kernels {
namespace {

constexpr std::int64_t kPanel = 256;      // columns of b (K, N) per panel
constexpr std::int64_t kRangeRows = 128;  // rows of b (K, N) per task
constexpr std::int64_t kRowsAtOnce = 4;   // rows of b added between a load and a store of a sum
constexpr std::int64_t kAhead = 8;        // rows: how far ahead b is prefetched
constexpr std::int64_t kDotRows = 16;     // rows of b (N, K) per task
constexpr std::int64_t kLine = 64;        // bytes of a cache line

ProductScratch& scratch() {
  static ProductScratch scratch;
  return scratch;
}

/// Bias and addend of element (m, n) of c.
template <class Out, class In>
struct EpilogueTerms {
  const In* bias;
  const Out* addend;
  std::int64_t columns;

  EpilogueTerms(const ProductShape& shape, const Out* c, const Epilogue<Out, In>& epilogue)
      : bias(epilogue.bias),
        addend(!shape.accumulate            ? nullptr
               : epilogue.addend == nullptr ? c
                                            : epilogue.addend),
        columns(shape.n) {}

  float operator()(std::int64_t m, std::int64_t n) const {
    const float of_bias = bias == nullptr ? 0.0F : static_cast<float>(bias[n]);
    return addend == nullptr ? of_bias : of_bias + static_cast<float>(addend[m * columns + n]);
  }
};

template <class In>
void prefetch_row(const In* row, std::int64_t width) {
  const auto* const bytes = reinterpret_cast<const char*>(row);
  for (std::int64_t at = 0; at < width * static_cast<std::int64_t>(sizeof(In)); at += kLine) {
    __builtin_prefetch(bytes + at);
  }
}

/// sums(m, n) += the terms of kCount rows of b from k on, for the columns [0, kWidth) at `b`.
template <int kWidth, int kCount, class In>
void add_rows(float* sums, const In* a, const In* b, const ProductShape& shape, std::int64_t k) {
  for (std::int64_t m = 0; m < shape.m; ++m) {
    float* const sum = sums + m * kPanel;
    float factor[kCount];
    for (int i = 0; i < kCount; ++i) factor[i] = static_cast<float>(a[m * shape.k + k + i]);
#pragma GCC ivdep
    for (int n = 0; n < kWidth; ++n) {
      float value = sum[n];
      for (int i = 0; i < kCount; ++i) {
        value = multiply_add(factor[i], static_cast<float>(b[i * shape.n + n]), value);
      }
      sum[n] = value;
    }
  }
}

/// The same for a panel width known at run time.
template <int kCount, class In>
void add_rows(float* sums, const In* a, const In* b, const ProductShape& shape, std::int64_t k, std::int64_t width) {
  if (width == kPanel) return add_rows<kPanel, kCount>(sums, a, b, shape, k);
  for (std::int64_t m = 0; m < shape.m; ++m) {
    float* const sum = sums + m * kPanel;
    for (int i = 0; i < kCount; ++i) {
      const float factor = static_cast<float>(a[m * shape.k + k + i]);
      simd_loop(width,
                [=](std::int64_t n) { sum[n] = multiply_add(factor, static_cast<float>(b[i * shape.n + n]), sum[n]); });
    }
  }
}

/// op(b) = b (K, N).
template <class Out, class In>
void multiply_plain(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                    const EpilogueTerms<Out, In>& terms) {
  const std::int64_t panels = (shape.n + kPanel - 1) / kPanel;
  const std::int64_t ranges = (shape.k + kRangeRows - 1) / kRangeRows;
  const std::int64_t padded = panels * kPanel;
  auto* const parts = reinterpret_cast<float*>(
      scratch().at_least(ranges * shape.m * padded * static_cast<std::int64_t>(sizeof(float))));  // (ranges, M, padded)

  for_each_task(space, "kozero::matmul_few_rows::panels", ranges * panels, [=](std::int64_t task) {
    const std::int64_t range = task / panels;
    const std::int64_t first = task % panels * kPanel;
    const std::int64_t width = std::min(kPanel, shape.n - first);
    const std::int64_t end = std::min(shape.k, (range + 1) * kRangeRows);
    alignas(kLine) float sums[kFewRows * kPanel];
    std::fill(sums, sums + shape.m * kPanel, 0.0F);
    std::int64_t k = range * kRangeRows;
    for (; k + kRowsAtOnce <= end; k += kRowsAtOnce) {
      for (std::int64_t ahead = k + kAhead; ahead < std::min(end, k + kAhead + kRowsAtOnce); ++ahead) {
        prefetch_row(b + ahead * shape.n + first, width);
      }
      add_rows<kRowsAtOnce>(sums, a, b + k * shape.n + first, shape, k, width);
    }
    for (; k < end; ++k) add_rows<1>(sums, a, b + k * shape.n + first, shape, k, width);
    for (std::int64_t m = 0; m < shape.m; ++m) {
      std::copy(sums + m * kPanel, sums + m * kPanel + width, parts + (range * shape.m + m) * padded + first);
    }
  });
  for_each_task(space, "kozero::matmul_few_rows::sums", panels * shape.m, [=](std::int64_t task) {
    const std::int64_t m = task / panels;
    const std::int64_t first = task % panels * kPanel;
    const std::int64_t width = std::min(kPanel, shape.n - first);
    alignas(kLine) float sums[kPanel];
    const float* const part = parts + m * padded + first;
    simd_loop(width, [=, &sums](std::int64_t n) { sums[n] = part[n]; });
    for (std::int64_t range = 1; range < ranges; ++range) {
      const float* const other = part + range * shape.m * padded;
      simd_loop(width, [=, &sums](std::int64_t n) { sums[n] += other[n]; });
    }
    store_run(c + m * shape.n + first, width, [=, &sums](std::int64_t n) { return sums[n] + terms(m, first + n); });
  });
}

/// sum_k a(k) b(k) of a row of a with kCount rows of b, by kLanes lanes each.
template <int kCount, class In>
void dots(float* results, const In* a, const In* b, std::int64_t extent) {
  float lanes[kCount][kLanes] = {};
  std::int64_t k = 0;
  for (; k + kLanes <= extent; k += kLanes) {
    for (int i = 0; i < kCount; ++i) {
      const In* const row = b + i * extent + k;
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes[i][lane] = multiply_add(static_cast<float>(a[k + lane]), static_cast<float>(row[lane]), lanes[i][lane]);
      }
    }
  }
  for (int lane = 0; k + lane < extent; ++lane) {
    for (int i = 0; i < kCount; ++i) {
      lanes[i][lane] =
          multiply_add(static_cast<float>(a[k + lane]), static_cast<float>(b[i * extent + k + lane]), lanes[i][lane]);
    }
  }
  for (int i = 0; i < kCount; ++i) {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) lanes[i][lane] += lanes[i][lane + half];
    }
    results[i] = lanes[i][0];
  }
}

/// op(b) = b^T, b (N, K).
template <class Out, class In>
void multiply_transposed(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                         const EpilogueTerms<Out, In>& terms) {
  const std::int64_t tasks = (shape.n + kDotRows - 1) / kDotRows;
  for_each_task(space, "kozero::matmul_few_rows::dots", tasks, [=](std::int64_t task) {
    const std::int64_t end = std::min(shape.n, (task + 1) * kDotRows);
    const auto store = [=](std::int64_t m, std::int64_t n, float value) {
      c[m * shape.n + n] = static_cast<Out>(value + terms(m, n));
    };
    std::int64_t n = task * kDotRows;
    for (; n + 2 <= end; n += 2) {
      for (std::int64_t m = 0; m < shape.m; ++m) {
        float results[2];
        dots<2>(results, a + m * shape.k, b + n * shape.k, shape.k);
        for (int i = 0; i < 2; ++i) store(m, n + i, results[i]);
      }
    }
    for (; n < end; ++n) {
      for (std::int64_t m = 0; m < shape.m; ++m) {
        float result;
        dots<1>(&result, a + m * shape.k, b + n * shape.k, shape.k);
        store(m, n, result);
      }
    }
  });
}

}  // namespace

template <class Out, class In>
void multiply_few_rows(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                       const Epilogue<Out, In>& epilogue) {
  const EpilogueTerms<Out, In> terms(shape, c, epilogue);
  if (shape.op_b == Op::none) {
    multiply_plain(space, shape, c, a, b, terms);
  } else {
    multiply_transposed(space, shape, c, a, b, terms);
  }
}

#define KOZERO_INSTANTIATE(Out, In)                                                                        \
  template void multiply_few_rows<Out, In>(const Device&, const ProductShape&, Out*, const In*, const In*, \
                                           const Epilogue<Out, In>&);
KOZERO_FOR_PRODUCTS(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
