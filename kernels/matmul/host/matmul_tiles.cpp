// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_tiles.cpp: the order in which blocks are packed, multiplied and stored, and their places in memory.
// The side with fewer blocks is shared: all threads pack it whole before the first product. The other side is streamed:
// its blocks are distributed over the workers. A worker packs a chunk of them for a pass (at most the unit's pass_steps
// of k), and multiplies each with a group of blocks of the shared side:
//   for each group, each chunk, each pass over k: pack the chunk; for each block of it, each of the group: c += ...
// A block's sums stay in the worker's scratch from pass to pass. After the last pass they are stored to c while the
// next block is multiplied, or before if the unit does not overlap. If k is long and the sums of all blocks of a worker
// fit into 2 MiB, k is cut into spans, and the shared side is packed span by span, so that it stays in the caches and
// needs little memory; all sums then stay from span to span.
#include <algorithm>
#include <cstddef>

#include <kozero/core/precision.hpp>
#include "kernels/matmul/host/matmul_host.hpp"
#include "kernels/matmul/host/tile_packing.hpp"
#include "kernels/matmul/host/tile_units.hpp"

namespace kozero::kernels {
namespace {

constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kSumBytes = kTileElements * static_cast<std::int64_t>(sizeof(float));
constexpr std::int64_t kChunkBytes = 512 << 10;  // most bytes of a packed chunk
constexpr std::int64_t kSpanBytes = 4 << 20;     // of the shared side
constexpr std::int64_t kKeptBlocks = 512;        // most blocks of sums that stay from span to span
// A line more than its elements, since the same rows of steps 2 KiB apart would share two sets of a first-level cache.
constexpr std::int64_t kStrideBytes = kStepBytes + kLineBytes;
template <class Word>
constexpr std::int64_t kStride = kStrideBytes / static_cast<std::int64_t>(sizeof(StorageOf<Word>));  // of elements
constexpr std::int64_t kPackedBlocks = 8;  // of a PackingUnit if k is across

struct Range {
  std::int64_t begin, end;

  [[nodiscard]] std::int64_t extent() const { return end - begin; }
};

/// Part `index` of `parts` nearly equal ones of [0, extent).
Range part_of(std::int64_t extent, std::int64_t parts, std::int64_t index) {
  return {extent * index / parts, extent * (index + 1) / parts};
}

/// The size of the fewest equal parts of [0, extent) that have at most `most` each.
std::int64_t equal_part(std::int64_t extent, std::int64_t most) {
  const std::int64_t parts = (extent + most - 1) / most;
  return (extent + parts - 1) / parts;
}

/// The part of a side that is packed together. If k is across, many blocks for one step, since a row of the matrix has
/// a line of each, and so they are in the same pages; else one block for many steps.
struct PackingUnit {
  std::int64_t blocks, steps;
};

/// A block of a side and a step of k.
struct Position {
  std::int64_t block, step;
};

std::int64_t blocks_of(std::int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

/// Rows of a block that exist.
std::int64_t rows_of_block(std::int64_t rows, std::int64_t block) {
  return std::min(kTileRows, rows - block * kTileRows);
}

/// How a product's blocks are distributed.
struct BlockPlan {
  std::int64_t steps;             ///< of k
  std::int64_t streamed, shared;  ///< blocks per side
  std::int64_t streams, splits;   ///< workers per side
  std::int64_t chunk, group;      ///< blocks per side that a worker multiplies at a time
  std::int64_t pass;              ///< steps that are multiplied at a time
  std::int64_t span;              ///< steps for which the shared side is packed at a time
  std::int64_t kept;              ///< streamed blocks whose sums stay: a chunk's, or with several spans a worker's
  TileSide streaming;

  [[nodiscard]] std::int64_t workers() const { return streams * splits; }
  [[nodiscard]] Range streamed_of(std::int64_t worker) const { return part_of(streamed, streams, worker % streams); }
  [[nodiscard]] Range shared_of(std::int64_t worker) const { return part_of(shared, splits, worker / streams); }
};

template <class Word>
BlockPlan plan_blocks(const ProductShape& shape, const TileUnit& unit, std::int64_t threads) {
  BlockPlan plan{};
  const std::int64_t left = blocks_of(shape.m);
  const std::int64_t right = blocks_of(shape.n);
  plan.steps = steps_of<Word>(shape.k);
  plan.pass = equal_part(plan.steps, unit.pass_steps);
  plan.streaming = left > right ? TileSide::left : TileSide::right;
  plan.streamed = std::max(left, right);
  plan.shared = std::min(left, right);
  plan.streams = std::min(threads, plan.streamed);
  plan.splits = std::min(threads / plan.streams, plan.shared);
  const std::int64_t most_streamed = (plan.streamed + plan.streams - 1) / plan.streams;
  const std::int64_t most_shared = (plan.shared + plan.splits - 1) / plan.splits;
  plan.group = equal_part(most_shared, unit.group_blocks);
  const std::int64_t most_packed = kChunkBytes / (plan.pass * kStrideBytes);
  plan.chunk = equal_part(most_streamed, std::clamp<std::int64_t>(unit.sum_blocks / plan.group, 1, most_packed));
  const std::int64_t passes = std::max<std::int64_t>(1, kSpanBytes / (plan.shared * plan.pass * kStrideBytes));
  const bool in_spans =
      passes * plan.pass < plan.steps && plan.group == most_shared && most_streamed * plan.group <= kKeptBlocks;
  plan.span = in_spans ? passes * plan.pass : plan.steps;
  plan.kept = in_spans ? most_streamed : plan.chunk;
  return plan;
}

ProductScratch& scratch() {
  static ProductScratch scratch;
  return scratch;
}

template <class Out, class In, class Word>
class TiledProduct {
 public:
  TiledProduct(const TileUnit& unit, const BlockPlan& plan, const ProductShape& shape, Out* c,
               const Epilogue<Out, In>& epilogue)
      : unit_(unit),
        blocks_(tile_blocks(unit.lines)),
        plan_(plan),
        shape_(shape),
        c_(c),
        bias_(epilogue.bias),
        active_(epilogue.active),
        hidden_(epilogue.hidden),
        addend_(shape.accumulate && epilogue.addend == nullptr ? c : epilogue.addend) {}

  /// Chooses the side that is streamed, and takes memory.
  void set_operands(const In* a, const In* b) {
    const TileSource<In> left{a, shape_.m, shape_.k, shape_.op_a == Op::none ? shape_.k : shape_.m,
                              shape_.op_a == Op::transpose};
    const TileSource<In> right{b, shape_.n, shape_.k, shape_.op_b == Op::none ? shape_.n : shape_.k,
                               shape_.op_b == Op::none};
    const bool left_streams = plan_.streaming == TileSide::left;
    streamed_ = left_streams ? left : right;
    shared_ = left_streams ? right : left;
    std::byte* memory = scratch().at_least(shared_bytes() + plan_.workers() * worker_bytes());
    packed_ = reinterpret_cast<Word*>(memory);
    of_workers_ = memory + shared_bytes();
  }

  /// Packs a part of the shared side for the steps of `span`.
  void pack_shared(std::int64_t worker, Range span) const {
    const TileSide side = plan_.streaming == TileSide::left ? TileSide::right : TileSide::left;
    const PackingUnit packed = shared_.k_across ? PackingUnit{kPackedBlocks, 1} : PackingUnit{1, plan_.pass};
    const std::int64_t along = (plan_.shared + packed.blocks - 1) / packed.blocks;
    const std::int64_t across = (span.extent() + packed.steps - 1) / packed.steps;
    const Range mine = part_of(along * across, plan_.workers(), worker);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::int64_t block = (shared_.k_across ? i % along : i / across) * packed.blocks;
      const std::int64_t step = (shared_.k_across ? i / along : i % across) * packed.steps;
      const Range blocks{block, std::min(block + packed.blocks, plan_.shared)};
      const Range steps{step, std::min(step + packed.steps, span.extent())};
      const Position next = shared_.k_across ? Position{block, step + 1} : Position{block + 1, step};
      const std::int64_t parts = blocks.extent() * steps.extent();
      std::int64_t part = 0;
      for (std::int64_t b = blocks.begin; b < blocks.end; ++b) {
        for (std::int64_t s = steps.begin; s < steps.end; ++s, ++part) {
          prefetch_rows<Word>(shared_, next.block * kTileRows, packed.blocks * kTileRows,
                              (span.begin + next.step) * kStepExtent<Word>, packed.steps, part, parts);
          pack_block(unit_.lines, shared_block(b, s), side, shared_, b * kTileRows,
                     (span.begin + s) * kStepExtent<Word>, {1, kStrideBytes / 4});
        }
      }
    }
  }

  /// Multiplies the worker's blocks for the steps of `span`.
  void multiply(std::int64_t worker, Range span) const {
    const TileUnitInUse unit(unit_);
    const Range streamed = plan_.streamed_of(worker);
    const Range shared = plan_.shared_of(worker);
    StoresAndPrefetches beside{this, streamed, span};
    for (std::int64_t h = shared.begin; h < shared.end; h += plan_.group) {
      const Range group{h, std::min(h + plan_.group, shared.end)};
      for (std::int64_t s = streamed.begin; s < streamed.end; s += plan_.chunk) {
        const Range chunk{s, std::min(s + plan_.chunk, streamed.end)};
        for (std::int64_t step = span.begin; step < span.end; step += plan_.pass) {
          const Range pass{step, std::min(step + plan_.pass, span.end)};
          multiply_pass(unit, worker, chunk, group, pass, step - span.begin, beside);
        }
      }
    }
    blocks_.store(beside.complete, 0, kTileRows);
    blocks_.finish_stores();
  }

 private:
  [[nodiscard]] std::int64_t shared_bytes() const { return plan_.shared * plan_.span * kStrideBytes; }
  [[nodiscard]] std::int64_t sums_bytes() const { return plan_.kept * plan_.group * kSumBytes; }
  [[nodiscard]] std::int64_t worker_bytes() const {
    return sums_bytes() + plan_.chunk * plan_.pass * kStrideBytes + kSumBytes;
  }

  [[nodiscard]] Word* shared_block(std::int64_t block, std::int64_t step_of_span) const {
    return packed_ + (block * plan_.span + step_of_span) * kStride<Word>;
  }

  using Block = TileRows<StorageOf<Out>, StorageOf<In>>;

  /// A block of c, whose sums will be at `sums`.
  [[nodiscard]] Block target(const float* sums, std::int64_t block_row, std::int64_t block_column) const {
    const std::int64_t row = block_row * kTileRows;
    const std::int64_t column = block_column * kTileRows;
    const std::int64_t first = row * shape_.n + column;
    const auto from = [](auto* matrix, std::int64_t at) {
      using Element = std::remove_const_t<std::remove_pointer_t<decltype(matrix)>>;
      using Storage = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(matrix)>>,
                                         const StorageOf<Element>, StorageOf<Element>>;
      return matrix == nullptr ? nullptr : reinterpret_cast<Storage*>(matrix + at);
    };
    const bool with_gelu = unit_.overlaps;
    return {from(c_, first),
            sums,
            from(bias_, column),
            from(addend_, first),
            with_gelu ? from(active_, first) : nullptr,
            with_gelu ? from(hidden_, first) : nullptr,
            shape_.n,
            rows_of_block(shape_.m, block_row),
            rows_of_block(shape_.n, block_column),
            unit_.overlaps && addend_ != c_ && shape_.n * static_cast<std::int64_t>(sizeof(Out)) % kLineBytes == 0};
  }

  /// The side work of a product: stores the block completed before the product, prefetches the lines of the block that
  /// the product completes, and prefetches a part of the elements to pack next.
  struct StoresAndPrefetches {
    const TiledProduct* of;
    Range streamed, span;  ///< of the worker, of k
    Block complete{}, next{};
    Range chunk{}, pass{};
    std::int64_t part = 0, parts = 1;  ///< this product, and the products, of the chunk and the pass

    static void step(const void* self, std::int64_t step) {
      const auto& beside = *static_cast<const StoresAndPrefetches*>(self);
      const Range rows = part_of(kTileRows, beside.pass.extent(), step);
      if (step == 0) beside.of->prefetch_next(beside);
      prefetch_target(beside.next, rows);
      beside.of->blocks_.store(beside.complete, rows.begin, rows.end);
    }
  };

  void multiply_pass(const TileUnitInUse& unit, std::int64_t worker, Range chunk, Range group, Range pass,
                     std::int64_t step_of_span, StoresAndPrefetches& beside) const {
    std::byte* const memory = of_workers_ + worker * worker_bytes();
    auto* const waiting = reinterpret_cast<float*>(memory);
    auto* const complete = reinterpret_cast<float*>(memory + sums_bytes());
    auto* const packed_chunk = reinterpret_cast<Word*>(complete + kTileElements);
    const bool left_streams = plan_.streaming == TileSide::left;
    const bool last = pass.end == plan_.steps;
    const std::int64_t first_kept = plan_.span < plan_.steps ? beside.streamed.begin : chunk.begin;
    beside.chunk = chunk;
    beside.pass = pass;
    beside.parts = chunk.extent() * group.extent();
    pack_chunk(packed_chunk, chunk, pass);
    for (std::int64_t s = chunk.begin; s < chunk.end; ++s) {
      const Word* const of_chunk = packed_chunk + (s - chunk.begin) * plan_.pass * kStride<Word>;
      for (std::int64_t h = group.begin; h < group.end; ++h) {
        float* const sums = waiting + ((s - first_kept) * plan_.group + h - group.begin) * kTileElements;
        float* const to = last ? complete : sums;
        beside.part = (s - chunk.begin) * group.extent() + h - group.begin;
        beside.next = last ? target(to, left_streams ? s : h, left_streams ? h : s) : Block{};
        const Word* const of_group = shared_block(h, step_of_span);
        // The shared block of the next product: after the pass, of the next pass.
        const bool ends_group = h + 1 == group.end;
        const bool ends_pass = ends_group && s + 1 == chunk.end;
        const Word* const later =
            shared_block(ends_group ? group.begin : h + 1, step_of_span + (ends_pass ? pass.extent() : 0));
        unit.product({to,
                      pass.begin > 0 ? sums : nullptr,
                      left_streams ? of_chunk : of_group,
                      left_streams ? of_group : of_chunk,
                      pass.extent(),
                      left_streams ? ReadOnce::right : ReadOnce::left,
                      {StoresAndPrefetches::step, &beside},
                      rows_of_block(shape_.m, left_streams ? s : h),
                      rows_of_block(shape_.n, left_streams ? h : s),
                      kStrideBytes,
                      later});
        beside.complete = beside.next;
      }
    }
  }

  /// Packs a chunk's blocks for a pass, one after the other.
  void pack_chunk(Word* to, Range chunk, Range pass) const {
    const std::int64_t at_once = streamed_.k_across ? 1 : pass.extent();  // see PackingUnit
    for (std::int64_t step = 0; step < pass.extent(); step += at_once) {
      for (std::int64_t s = chunk.begin; s < chunk.end; ++s) {
        pack_block(unit_.lines, to + ((s - chunk.begin) * plan_.pass + step) * kStride<Word>, plan_.streaming,
                   streamed_, s * kTileRows, (pass.begin + step) * kStepExtent<Word>, {at_once, kStrideBytes / 4});
      }
    }
  }

  /// Prefetches a part of the elements to pack next: for the chunk's next pass, or the next chunk's first pass in the
  /// span, or the first chunk's in the next span. Not for a unit that multiplies as fast as the caches deliver.
  [[gnu::always_inline]] void prefetch_next(const StoresAndPrefetches& beside) const {
    if (unit_.overlaps) return;
    const bool same_chunk = beside.pass.end < beside.span.end;
    const bool same_group = beside.chunk.end < beside.streamed.end;
    const std::int64_t block = same_chunk ? beside.chunk.begin : same_group ? beside.chunk.end : beside.streamed.begin;
    const std::int64_t next_span = beside.span.end < plan_.steps ? beside.span.end : 0;
    const std::int64_t step = same_chunk ? beside.pass.end : same_group ? beside.span.begin : next_span;
    prefetch_rows<Word>(streamed_, block * kTileRows, plan_.chunk * kTileRows, step * kStepExtent<Word>, plan_.pass,
                        beside.part, beside.parts);
  }

  /// Prefetches the rows that TileBlocks::store() reads and writes; their stride defeats the hardware's prefetching.
  [[gnu::always_inline]] static void prefetch_target(const Block& block, Range rows) {
    if (block.sums == nullptr) return;
    if (!block.non_temporal) prefetch_target<true>(block.c, block, rows);
    if (!block.non_temporal) prefetch_target<true>(block.active, block, rows);
    prefetch_target<false>(block.hidden, block, rows);
    if (block.addend != block.c) prefetch_target<false>(block.addend, block, rows);
  }

  template <bool writes, class Storage>
  [[gnu::always_inline]] static void prefetch_target(const Storage* matrix, const Block& block, Range rows) {
    if (matrix == nullptr) return;
    for (std::int64_t r = rows.begin; r < std::min(rows.end, block.rows); ++r) {
      __builtin_prefetch(matrix + r * block.stride, writes, 2);
      if (sizeof(Storage) == sizeof(float)) __builtin_prefetch(matrix + r * block.stride + kTileRows / 2, writes, 2);
    }
  }

  const TileUnit& unit_;
  const TileBlocks& blocks_;
  BlockPlan plan_;
  ProductShape shape_;
  Out* c_;
  const In* bias_;
  Out* active_;
  const Out* hidden_;
  const Out* addend_;
  TileSource<In> streamed_{}, shared_{};
  Word* packed_ = nullptr;           // the shared side: [block][step of the span]
  std::byte* of_workers_ = nullptr;  // per worker: waiting sums, a block's complete sums, a packed chunk
};

}  // namespace

template <class Out, class In>
void multiply_by_tiles(const Device& space, const TileUnit& unit, const ProductShape& shape, Out* c, const In* a,
                       const In* b, const Epilogue<Out, In>& epilogue) {
  with_word<In>(unit, [&](auto word) {
    using Word = decltype(word);
    const BlockPlan plan = plan_blocks<Word>(shape, unit, space.concurrency());
    TiledProduct<Out, In, Word> product(unit, plan, shape, c, epilogue);
    product.set_operands(a, b);
    const Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>> workers(space, 0, plan.workers());
    for (std::int64_t step = 0; step < plan.steps; step += plan.span) {
      const Range span{step, std::min(step + plan.span, plan.steps)};
      Kokkos::parallel_for("kozero::matmul::pack", workers, [=](std::int64_t w) { product.pack_shared(w, span); });
      Kokkos::parallel_for("kozero::matmul::tiles", workers, [=](std::int64_t w) { product.multiply(w, span); });
    }
  });
  // A separate pass if nothing overlaps: with the stores of blocks it is slower, since their rows are far apart.
  if (!unit.overlaps) apply_gelu(space, shape, c, epilogue);
}

#define KOZERO_INSTANTIATE(Out, In)                                                                              \
  template void multiply_by_tiles<Out, In>(const Device&, const TileUnit&, const ProductShape&, Out*, const In*, \
                                           const In*, const Epilogue<Out, In>&);
KOZERO_FOR_PRODUCTS(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
