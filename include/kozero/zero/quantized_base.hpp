// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// quantized_base.hpp: the frozen base of adapters in 8 or 4 bits per weight, sharded, gathered and decoded unit by
// unit.
//   words of a unit = the blocks of 64 weights, one behind the other (kernels/ops/quantize.hpp)
// The matrices are quantized; norms and biases stay floats. A block is 64 consecutive weights of the unit. Tensors
// begin at multiples of 64, so a block belongs to one tensor (or tensors read as one matrix), and never depends on a
// shard: any number of ranks stores the same words. A shard is a range of words and may begin inside a block.
// Collectives move words; acquire(u) decodes them into a buffer of weights that the units of a slot share.
#pragma once
#include <optional>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/distributed/distributed_array.hpp>
#include <kozero/zero/gathered_units.hpp>
#include "kernels/ops/quantize.hpp"

namespace kozero::zero {

/// Consecutive blocks of one kind.
struct BlockRun {
  std::int64_t first = 0;  ///< block
  std::int64_t count = 0;
  kernels::BlockCode code = kernels::BlockCode::raw;
  std::int64_t first_word = 0;
};

/// The runs of a unit's blocks, in order.
std::vector<BlockRun> block_runs(const ParameterTable& table, int unit, BaseType type);

/// The table of the words: a unit of the base has its words as elements, the other units have none.
ParameterTable table_of_words(const ParameterTable& table, BaseType type);

/// The base of a model that reads weights as Scalar.
template <class Scalar>
class QuantizedBase {
 public:
  /// `placement`: of the words. Takes memory from `ledger`, the words' from `source` if it is not nullptr.
  QuantizedBase(const ParameterTable& table, BaseType type, const distributed::Mesh& mesh,
                distributed::Placement placement, MemoryLedger& ledger, GatherOrder order, MemorySource* source);
  QuantizedBase(const QuantizedBase&) = delete;  // gathered_ refers to words_
  QuantizedBase& operator=(const QuantizedBase&) = delete;

  /// All weights of the unit, valid until release. Throws Error(internal) if another unit holds its buffer.
  Vector<const Scalar> acquire(int unit);
  void release(int unit);

  /// The weights whose blocks overlap this rank's words, which put() needs.
  [[nodiscard]] UnitRange range_to_put(int unit) const;
  /// Encodes the unit's weights from `begin` on, a whole number of blocks, and keeps the words that are this rank's.
  void put(int unit, std::int64_t begin, const HostVector<const float>& weights) const;
  /// Makes the words visible to every rank. Collective.
  void publish();

  /// This rank's words of a unit.
  [[nodiscard]] Vector<float> words(int unit) const { return words_.local(unit); }
  [[nodiscard]] bool is_replicated() const { return words_.placement() == distributed::Placement::replicated; }

 private:
  struct Buffer {
    Vector<Scalar> memory;
    int occupant = -1;
    bool held = false;
  };

  ParameterTable table_;                     // of the base's weights
  std::vector<std::vector<BlockRun>> runs_;  // by unit
  ParameterTable table_of_words_;
  distributed::DistributedArray<float> words_;    // 32-bit words, with which nothing is computed
  std::optional<GatheredUnits<float>> gathered_;  // sharded only
  SlotBuffers slots_;
  std::vector<Buffer> buffers_;
};

/// Bytes of a unit's words.
std::int64_t bytes_of_words(const ParameterTable& table, int unit, BaseType type);

}  // namespace kozero::zero
