// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_host.hpp: the algorithms of matmul.hpp on a host, and the scratch memory and task loop that they share.
//   tiles      blocks of 32 x 32 on a tile unit of the processor (AMX, AVX-512, AVX2, NEON)
//   few rows   M <= kFewRows, as in generation: reads each weight once, on all threads
//   library    oneDNN, only for bench kernels to compare with
// matmul_host.cpp chooses among the first two. They add terms in an order that depends only on the shape and the
// algorithm. So an element's bits depend on its row of op(a), its column of op(b) and whether M is at most kFewRows,
// not on the other rows or the number of threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <Kokkos_Core.hpp>
#include <memory>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/matmul/host/tile_units.hpp"
#include "kernels/matmul/matmul.hpp"

namespace kozero::kernels {

/// Calls task(i) for i in [0, tasks); an idle thread runs the next task.
template <class Task>
void for_each_task(const Device& space, const char* label, std::int64_t tasks, const Task& task) {
  using Policy = Kokkos::RangePolicy<Device, Kokkos::Schedule<Kokkos::Dynamic>, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for(label, Policy(space, 0, tasks, Kokkos::ChunkSize(1)), task);
}

class ProductScratch {
 public:
  /// At least `wanted` bytes, aligned to a page. The memory only grows, and growing discards its contents.
  std::byte* at_least(std::int64_t wanted) {
    if (wanted > extent_) {
      const std::int64_t pages = (wanted + kPage - 1) / kPage * kPage;
      extent_ = 0;
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, static_cast<std::size_t>(pages))));
      if (memory_ == nullptr) throw Error(Failure::internal, "matmul: no memory for packed operands");
      extent_ = pages;
    }
    return memory_.get();
  }

 private:
  static constexpr std::int64_t kPage = 4096;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::int64_t extent_ = 0;
};

/// multiply() of matmul.hpp without its GELU (matmul_onednn.cpp, matmul_onednn_absent.cpp). Throws Error(internal) if
/// the library fails or there is none.
template <class Out, class In>
void multiply_by_library(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                         const Epilogue<Out, In>& epilogue);

/// X(Out, In) for the types of c and of a and b that matmul.hpp multiplies.
#define KOZERO_FOR_PRODUCTS(X) \
  X(float, float) X(float, Bfloat16) X(Bfloat16, Bfloat16) X(float, Float16) X(Float16, Float16)

/// Most rows of a for the algorithm of few rows, as in generation.
///   c (M, N) = a (M, K) op(b) [+ bias] [+ c or addend]        M <= kFewRows
/// All threads read each element of b once, in the order of memory. An element is used for only M multiplications, so
/// memory bandwidth limits the speed, and b may have 16 bits. b (K, N) is cut into panels of columns and ranges of
/// rows, whose partial sums a second dispatch adds in order; for b (N, K), each row is a dot product with every row of
/// a. Sums are in float.
inline constexpr std::int64_t kFewRows = 8;

/// Whether multiply_few_rows computes this shape.
inline bool has_few_rows(const ProductShape& shape) { return shape.m <= kFewRows && shape.op_a == Op::none; }

/// multiply() of matmul.hpp with at most a bias and an addend.
template <class Out, class In>
void multiply_few_rows(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                       const Epilogue<Out, In>& epilogue);

/// multiply() of matmul.hpp in blocks of 32 x 32 by `unit`, one of tile_units<In>().
template <class Out, class In>
void multiply_by_tiles(const Device& space, const TileUnit& unit, const ProductShape& shape, Out* c, const In* a,
                       const In* b, const Epilogue<Out, In>& epilogue);

}  // namespace kozero::kernels
