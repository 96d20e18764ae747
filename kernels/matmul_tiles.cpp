// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_tiles.cpp: which blocks are multiplied when, and where they lie meanwhile.
// The side with fewer blocks is shared: packed whole, by all threads, before anybody multiplies. The other side
// streams: its blocks are dealt out to the workers. A worker packs one for a pass, the unit's pass_steps of k, and
// multiplies it with `group` blocks of the shared side, which the second-level cache holds:
//   for each chunk, each group, each pass over k, each block of the chunk: pack it; for each of the group: c += ...
// A block's sums wait in the worker's scratch from pass to pass, and go to c after the last. A worker whose blocks are
// one chunk and one group keeps all its sums at once: then k is cut into spans, and the shared side is packed a span at
// a time, so that a long k needs little memory.
#include <algorithm>
#include <cstddef>

#include <kozero/core/precision.hpp>
#include <kozero/kernels/matmul_tiles.hpp>
#include <kozero/kernels/product_scratch.hpp>
#include <kozero/kernels/stored_run.hpp>
#include <kozero/kernels/tile_packing.hpp>

namespace kozero::kernels {
namespace {

constexpr std::int64_t kGroupBlocks = 32;     // 1024 rows or columns of the shared side
constexpr std::int64_t kSumBlocks = 128;      // 512 KiB of sums
constexpr std::int64_t kSpanBytes = 4 << 20;  // of the shared side

struct Range {
  std::int64_t begin, end;

  [[nodiscard]] std::int64_t extent() const { return end - begin; }
};

/// Part `index` of `parts` nearly equal ones of [0, extent).
Range part_of(std::int64_t extent, std::int64_t parts, std::int64_t index) {
  return {extent * index / parts, extent * (index + 1) / parts};
}

std::int64_t blocks_of(std::int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

/// How a product's blocks are dealt out.
struct Deal {
  std::int64_t steps;             ///< of k
  std::int64_t streamed, shared;  ///< blocks of a side
  std::int64_t streams, splits;   ///< workers along a side
  std::int64_t chunk, group;      ///< blocks of a side that a worker multiplies at a time
  std::int64_t pass;              ///< steps that are multiplied at a time
  std::int64_t span;              ///< steps for which the shared side is packed at a time
  TileSide streaming;

  [[nodiscard]] std::int64_t workers() const { return streams * splits; }
  [[nodiscard]] Range streamed_of(std::int64_t worker) const { return part_of(streamed, streams, worker % streams); }
  [[nodiscard]] Range shared_of(std::int64_t worker) const { return part_of(shared, splits, worker / streams); }
};

template <class In>
Deal deal_out(const ProductShape& shape, const TileUnit& unit, std::int64_t threads) {
  Deal deal{};
  const std::int64_t left = blocks_of(shape.m);
  const std::int64_t right = blocks_of(shape.n);
  deal.steps = steps_of<In>(shape.k);
  deal.pass = std::min(deal.steps, unit.pass_steps);
  deal.streaming = left > right ? TileSide::left : TileSide::right;
  deal.streamed = std::max(left, right);
  deal.shared = std::min(left, right);
  deal.streams = std::min(threads, deal.streamed);
  deal.splits = std::min(threads / deal.streams, deal.shared);
  const std::int64_t most_streamed = (deal.streamed + deal.streams - 1) / deal.streams;
  const std::int64_t most_shared = (deal.shared + deal.splits - 1) / deal.splits;
  deal.group = std::min(most_shared, kGroupBlocks);
  deal.chunk = std::min(most_streamed, kSumBlocks / deal.group);
  const bool at_once = deal.chunk == most_streamed && deal.group == most_shared;
  const std::int64_t passes = std::max<std::int64_t>(1, kSpanBytes / (deal.shared * deal.pass * kStepBytes));
  deal.span = at_once ? std::min(deal.steps, passes * deal.pass) : deal.steps;
  return deal;
}

ProductScratch& scratch() {
  static ProductScratch scratch;
  return scratch;
}

template <class Out, class In>
class TiledProduct {
 public:
  TiledProduct(const TileUnit& unit, const Deal& deal, const ProductShape& shape, Out* c,
               const Epilogue<Out, In>& epilogue)
      : unit_(unit),
        deal_(deal),
        shape_(shape),
        c_(c),
        bias_(epilogue.bias),
        addend_(shape.accumulate && epilogue.addend == nullptr ? c : epilogue.addend) {}

  void take(const In* a, const In* b) {
    const TileSource<In> left{a, shape_.m, shape_.k, shape_.op_a == Op::none ? shape_.k : shape_.m,
                              shape_.op_a == Op::transpose};
    const TileSource<In> right{b, shape_.n, shape_.k, shape_.op_b == Op::none ? shape_.n : shape_.k,
                               shape_.op_b == Op::none};
    const bool left_streams = deal_.streaming == TileSide::left;
    streamed_ = left_streams ? left : right;
    shared_ = left_streams ? right : left;
    std::byte* memory = scratch().at_least(shared_bytes() + deal_.workers() * worker_bytes());
    packed_ = reinterpret_cast<Packed<In>*>(memory);
    of_workers_ = memory + shared_bytes();
  }

  /// Packs a part of the shared side for the steps of `span`.
  void pack_shared(std::int64_t worker, Range span) const {
    const TileSide side = deal_.streaming == TileSide::left ? TileSide::right : TileSide::left;
    const std::int64_t passes = (span.extent() + deal_.pass - 1) / deal_.pass;
    const Range mine = part_of(deal_.shared * passes, deal_.workers(), worker);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::int64_t first = i % passes * deal_.pass;
      const std::int64_t steps = std::min(deal_.pass, span.extent() - first);
      for (std::int64_t step = first; step < first + steps; ++step) {
        prefetch_block(shared_, (i + 1) / passes * kTileRows,
                       (span.begin + (i + 1) % passes * deal_.pass) * kStepExtent<In>, deal_.pass, step - first, steps);
        pack_block(shared_block(i / passes, step), side, shared_, i / passes * kTileRows,
                   (span.begin + step) * kStepExtent<In>, 1);
      }
    }
  }

  /// Multiplies the worker's blocks for the steps of `span`.
  void multiply(std::int64_t worker, Range span) const {
    const TileUnitInUse unit(unit_);
    const Range streamed = deal_.streamed_of(worker);
    const Range shared = deal_.shared_of(worker);
    for (std::int64_t s = streamed.begin; s < streamed.end; s += deal_.chunk) {
      const Range chunk{s, std::min(s + deal_.chunk, streamed.end)};
      for (std::int64_t h = shared.begin; h < shared.end; h += deal_.group) {
        const Range group{h, std::min(h + deal_.group, shared.end)};
        for (std::int64_t step = span.begin; step < span.end; step += deal_.pass) {
          const Range pass{step, std::min(step + deal_.pass, span.end)};
          multiply_pass(unit, worker, chunk, group, pass, step - span.begin);
        }
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t shared_bytes() const { return deal_.shared * deal_.span * kStepBytes; }
  [[nodiscard]] std::int64_t sums_bytes() const {
    return deal_.chunk * deal_.group * kTileElements * static_cast<std::int64_t>(sizeof(float));
  }
  [[nodiscard]] std::int64_t worker_bytes() const { return sums_bytes() + deal_.pass * kStepBytes; }

  [[nodiscard]] Packed<In>* shared_block(std::int64_t block, std::int64_t step_of_span) const {
    return packed_ + (block * deal_.span + step_of_span) * kStepElements<In>;
  }

  void multiply_pass(const TileUnitInUse& unit, std::int64_t worker, Range chunk, Range group, Range pass,
                     std::int64_t step_of_span) const {
    std::byte* const memory = of_workers_ + worker * worker_bytes();
    auto* const sums = reinterpret_cast<float*>(memory);
    auto* const mine = reinterpret_cast<Packed<In>*>(memory + sums_bytes());
    const bool left_streams = deal_.streaming == TileSide::left;
    const bool last = pass.end == deal_.steps;
    const bool only = last && pass.begin == 0;
    for (std::int64_t s = chunk.begin; s < chunk.end; ++s) {
      pack_block(mine, deal_.streaming, streamed_, s * kTileRows, pass.begin * kStepExtent<In>, pass.extent());
      for (std::int64_t h = group.begin; h < group.end; ++h) {
        prefetch_next(chunk, pass, s, h - group.begin, group.extent());
        const Packed<In>* const others = shared_block(h, step_of_span);
        // The sums of a single pass wait for nothing.
        const std::int64_t slot = only ? 0 : (s - chunk.begin) * deal_.group + h - group.begin;
        float* const sum = sums + slot * kTileElements;
        if (last) prefetch_target(left_streams ? s : h, left_streams ? h : s);
        unit.product(sum, left_streams ? mine : others, left_streams ? others : mine, pass.extent(), pass.begin > 0);
        if (last) store(sum, left_streams ? s : h, left_streams ? h : s);
      }
    }
  }

  /// What is packed after block s: the chunk's next block, or its first one in the next pass.
  void prefetch_next(Range chunk, Range pass, std::int64_t s, std::int64_t part, std::int64_t parts) const {
    const bool same_pass = s + 1 < chunk.end;
    prefetch_block(streamed_, (same_pass ? s + 1 : chunk.begin) * kTileRows,
                   (same_pass ? pass.begin : pass.end) * kStepExtent<In>, deal_.pass, part, parts);
  }

  /// A block of c: its first element, and how much of it exists.
  struct Block {
    std::int64_t first, rows, columns;
  };

  /// Asks for the lines that store() will read or write, which lie a row apart: no processor guesses them.
  [[gnu::always_inline]] void prefetch_target(std::int64_t block_row, std::int64_t block_column) const {
    const Block block = target(block_row, block_column);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::int64_t at = block.first + r * shape_.n;
      __builtin_prefetch(c_ + at, 1, 2);
      if (sizeof(Out) == sizeof(float)) __builtin_prefetch(c_ + at + kTileRows / 2, 1, 2);
      if (addend_ == nullptr || addend_ == c_) continue;
      __builtin_prefetch(addend_ + at, 0, 2);
      if (sizeof(Out) == sizeof(float)) __builtin_prefetch(addend_ + at + kTileRows / 2, 0, 2);
    }
  }

  [[nodiscard]] Block target(std::int64_t block_row, std::int64_t block_column) const {
    const std::int64_t row = block_row * kTileRows;
    const std::int64_t column = block_column * kTileRows;
    return {row * shape_.n + column, std::min(kTileRows, shape_.m - row), std::min(kTileRows, shape_.n - column)};
  }

  /// The block's place in c = its sums, plus the bias, plus the addend's block.
  void store(float* sum, std::int64_t block_row, std::int64_t block_column) const {
    const Block block = target(block_row, block_column);
    if (shape_.has_bias) add_to_rows(sum, bias_ + block_column * kTileRows, block.columns);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::int64_t at = block.first + r * shape_.n;
      float* const of_row = sum + r * kTileRows;
      if (addend_ != nullptr) {
        const Out* const added = addend_ + at;
        simd_loop(block.columns, [=](std::int64_t j) { of_row[j] += static_cast<float>(added[j]); });
      }
      store_run(c_ + at, block.columns, [=](std::int64_t j) { return of_row[j]; });
    }
  }

  void add_to_rows(float* sum, const In* bias, std::int64_t columns) const {
    float widened[kTileRows] = {};
    for (std::int64_t j = 0; j < columns; ++j) widened[j] = static_cast<float>(bias[j]);
    simd_loop(kTileElements, [=, &widened](std::int64_t i) { sum[i] += widened[i % kTileRows]; });
  }

  const TileUnit& unit_;
  Deal deal_;
  ProductShape shape_;
  Out* c_;
  const In* bias_;
  const Out* addend_;
  TileSource<In> streamed_{}, shared_{};
  Packed<In>* packed_ = nullptr;     // the shared side: [block][step of the span]
  std::byte* of_workers_ = nullptr;  // of each: sums, then a packed block
};

}  // namespace

template <class Out, class In>
void multiply_by_tiles(const Device& space, const TileUnit& unit, const ProductShape& shape, Out* c, const In* a,
                       const In* b, const Epilogue<Out, In>& epilogue) {
  const Deal deal = deal_out<In>(shape, unit, space.concurrency());
  TiledProduct<Out, In> product(unit, deal, shape, c, epilogue);
  product.take(a, b);
  const Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>> workers(space, 0, deal.workers());
  for (std::int64_t step = 0; step < deal.steps; step += deal.span) {
    const Range span{step, std::min(step + deal.span, deal.steps)};
    Kokkos::parallel_for("kozero::matmul::pack", workers, [=](std::int64_t w) { product.pack_shared(w, span); });
    Kokkos::parallel_for("kozero::matmul::tiles", workers, [=](std::int64_t w) { product.multiply(w, span); });
  }
}

template void multiply_by_tiles<float, float>(const Device&, const TileUnit&, const ProductShape&, float*, const float*,
                                              const float*, const Epilogue<float, float>&);
#define KOZERO_INSTANTIATE(T)                                                                                        \
  template void multiply_by_tiles<float, T>(const Device&, const TileUnit&, const ProductShape&, float*, const T*,   \
                                            const T*, const Epilogue<float, T>&);                                    \
  template void multiply_by_tiles<T, T>(const Device&, const TileUnit&, const ProductShape&, T*, const T*, const T*, \
                                        const Epilogue<T, T>&);
KOZERO_FOR_16_BIT_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
