// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// parameter_table.hpp: the tensors of a model, the units that contain them, the ranks' shards of a unit, and the
// buffers that units share.
//   flat array = unit 0 | unit 1 | ...       unit = tensor, pad to 64, tensor, pad to 64, ..., pad to unit_multiple()
// ZeRO gathers, reduces and shards units: the embedding, one or more transformer blocks, the head with the final norm.
// A tensor belongs to one unit, except a vocabulary in blocks (model.vocab_block): each block of its rows is a unit.
// Inside a unit every tensor, or group of tensors that one kernel reads as one matrix, is aligned to 64 elements.
// The model fills the table once; zero, optim and io read it. Pads are zero and appear in no file, norm or count.
// The header includes no Kokkos.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kozero {

inline constexpr std::int64_t kAlignment = 64;  ///< elements: 256 bytes of f32

/// The smallest multiple of kAlignment that is >= extent.
constexpr std::int64_t aligned(std::int64_t extent) { return (extent + kAlignment - 1) / kAlignment * kAlignment; }

/// The multiple to which a unit's extent is rounded up: the largest power of two that pads it by less than 1/1024, but
/// at least kAlignment and at most 512 kAlignment. The shards of n ranks are equal for each power of two n up to
/// unit_multiple() / kAlignment (64 for a block of GPT-2 124M). NCCL has a single collective for equal shards, and
/// needs n calls for unequal shards.
constexpr std::int64_t unit_multiple(std::int64_t extent) {
  const auto largest = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(extent) / 1024));
  return std::clamp(largest, kAlignment, 512 * kAlignment);
}

enum class Initial { normal, zeros, ones };

/// A tensor as published, and as stored in files.
struct Tensor {
  std::string name;                 ///< "h.0.attn.c_attn.weight"
  std::vector<std::int64_t> shape;  ///< in the published orientation

  [[nodiscard]] std::int64_t extent() const;  ///< elements
};

/// The overlap of a tensor with a range of a unit's elements, such as a shard.
struct TensorPart {
  std::int64_t begin = 0;   ///< the overlap's first element, counted from the range's first
  std::int64_t first = 0;   ///< the same element, counted from the tensor's first
  std::int64_t extent = 0;  ///< elements; 0: no overlap
};

/// Consecutive elements of a tensor in one unit: the whole tensor, or a block of its rows.
struct Parameter {
  std::string name;                 ///< the tensor's
  std::vector<std::int64_t> shape;  ///< shape of these elements
  int tensor = 0;                   ///< index into ParameterTable::tensors()
  std::int64_t first = 0;           ///< the first of these elements, counted from the tensor's first
  int unit = 0;
  std::int64_t offset = 0;   ///< elements from the unit's begin
  std::int64_t pad = 0;      ///< zeros directly behind the elements, which a kernel reads as more rows of the matrix
  bool decay = true;         ///< weight decay applies
  bool trainable = true;     ///< has a gradient and is updated; false: frozen
  bool overwritten = false;  ///< a micro-step's first contribution overwrites the gradient, which need not be zeroed
  Initial initial = Initial::normal;
  float deviation = 0.02F;  ///< standard deviation of Initial::normal

  [[nodiscard]] std::int64_t extent() const;  ///< without the pad
  /// The overlap with the unit's elements [begin, begin + extent).
  [[nodiscard]] TensorPart part_in(std::int64_t begin, std::int64_t extent) const;
};

/// The use of a block of a vocabulary. `both` is a tied vocabulary: a micro-step adds to the block's gradient at two
/// distant times, so each use has a separate sum, and the sums are added at the step's end
/// (ParameterAccess::lookup_gradient).
enum class VocabularyUse { none, lookup, head, both };

/// Slots of a decoder's units. The embedding and an untied head share a slot, since they are never held together.
inline constexpr int kEmbeddingSlot = 0, kBlockSlot = 1, kHeadSlot = 2, kAdapterSlot = 3;

struct Unit {
  std::string name;
  std::int64_t extent = 0;  ///< elements with pads: a multiple of unit_multiple()
  std::int64_t offset = 0;  ///< of the unit's first element in the flat array
  int slot = 0;  ///< units of a slot share a few buffers, since they are used one at a time or in small groups
  VocabularyUse vocabulary = VocabularyUse::none;  ///< not none: the unit is a block of a vocabulary
  bool trainable = true;                           ///< at least one of its rows is trainable
  /// The base of adapters: frozen for good. Its weights come from model.init; it has no master and is in no file.
  bool is_base = false;
  int beside = -1;  ///< the unit of blocks beside which these adapters are read; -1: the unit has no adapters
};

class ParameterTable {
 public:
  /// Opens a unit, to which later `add` calls append tensors. Returns the unit's number.
  int add_unit(const std::string& name, int slot, VocabularyUse vocabulary = VocabularyUse::none);
  /// Appends a tensor to the open unit at the next multiple of 64 elements. Returns the row's number.
  int add(Parameter parameter) { return append(std::move(parameter), true); }
  /// Appends a tensor directly behind the previous one, so that a kernel reads both as rows of one matrix.
  int add_joined(Parameter parameter) { return append(std::move(parameter), false); }
  /// Appends further rows of the tensor added last to the open unit; the tensor's first extent grows by their number.
  int continue_tensor(Parameter parameter);
  /// Makes all rows of a tensor frozen.
  void freeze(int tensor);
  /// Opens a unit of adapters that is read beside the unit of blocks `unit`. Returns its number. All units before the
  /// first unit of adapters become their base.
  int add_adapters(int unit);

  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Ordered by tensor, by unit and by offset.
  [[nodiscard]] const std::vector<Parameter>& rows() const { return rows_; }
  [[nodiscard]] const std::vector<Unit>& units() const { return units_; }
  [[nodiscard]] const Parameter& row(int index) const { return rows_.at(static_cast<std::size_t>(index)); }
  /// The rows of one unit.
  [[nodiscard]] std::span<const Parameter> rows_of(int unit) const;
  /// The rows of one tensor.
  [[nodiscard]] std::span<const Parameter> rows_of_tensor(int tensor) const;
  [[nodiscard]] const Unit& unit(int index) const { return units_.at(static_cast<std::size_t>(index)); }
  [[nodiscard]] int num_units() const { return static_cast<int>(units_.size()); }
  [[nodiscard]] int num_slots() const;
  /// The largest unit of a slot, in elements.
  [[nodiscard]] std::int64_t slot_extent(int slot) const;
  /// Elements of the flat array, pads included.
  [[nodiscard]] std::int64_t extent() const;
  /// Elements of all tensors, pads excluded: the parameter count.
  [[nodiscard]] std::int64_t num_parameters() const;

  [[nodiscard]] bool is_trainable(int tensor) const { return rows_of_tensor(tensor).front().trainable; }
  /// Whether the tensor belongs to the base of adapters.
  [[nodiscard]] bool is_base(int tensor) const { return unit(rows_of_tensor(tensor).front().unit).is_base; }
  /// The tensors of the base of adapters come first.
  [[nodiscard]] std::size_t num_base_tensors() const;
  [[nodiscard]] bool has_adapters() const { return !units_.empty() && units_.front().is_base; }
  /// Whether a trainable row overlaps the unit's elements [begin, begin + extent).
  [[nodiscard]] bool is_trainable(int unit, std::int64_t begin, std::int64_t extent) const;
  /// Elements of the trainable tensors, pads excluded.
  [[nodiscard]] std::int64_t num_trainable() const;
  /// Elements of the tensors that files store, pads excluded: all, or the adapters alone.
  [[nodiscard]] std::int64_t num_stored() const { return has_adapters() ? num_trainable() : num_parameters(); }
  /// Backward needs no unit before this one, since units are in the order of forward, except that adapters are read
  /// beside their blocks. num_units() if all are frozen.
  [[nodiscard]] int first_trainable_unit() const;
  /// The adapters that are read beside a unit; -1: it has none.
  [[nodiscard]] int adapters_of(int unit) const;
  /// The table of the gradients: the same unit numbers, but frozen units have no rows and extent 0.
  [[nodiscard]] ParameterTable without_frozen_units() const;
  /// The table of the master weights: the same, but only the base of adapters is left out.
  [[nodiscard]] ParameterTable without_base() const;
  /// The same without any rows.
  [[nodiscard]] ParameterTable without_units() const;
  /// The table of the base of adapters: the same, but all other units are left out.
  [[nodiscard]] ParameterTable base() const;

 private:
  /// The table without the rows of the units that have the property `left_out`.
  template <class LeftOut>
  [[nodiscard]] ParameterTable without(const LeftOut& left_out) const;
  int append(Parameter parameter, bool align);
  /// Places the parameter in the open unit, behind the parameters already placed there.
  int place(Parameter parameter, bool align);

  std::vector<Tensor> tensors_;
  std::vector<Parameter> rows_;
  std::vector<Unit> units_;
};

/// The contiguous shards of one flat extent over n ranks.
///   shard = ceil(ceil(extent / n) / 64) * 64     rank r owns [min(r*shard, extent), min((r+1)*shard, extent))
/// The last shards may be short or empty (unit_multiple() avoids it). Every element has one owner in any configuration.
/// With fewer owners than ranks, the last `num_owners` ranks own the shards of a partition over `num_owners` ranks.
class Partition {
 public:
  Partition(std::int64_t extent, int num_ranks) : Partition(extent, num_ranks, num_ranks) {}
  Partition(std::int64_t extent, int num_ranks, int num_owners)
      : extent_(extent),
        num_ranks_(num_ranks),
        num_owners_(num_owners),
        shard_(aligned((extent + num_owners - 1) / num_owners)) {}

  [[nodiscard]] std::int64_t extent() const { return extent_; }
  [[nodiscard]] int num_ranks() const { return num_ranks_; }
  [[nodiscard]] int num_owners() const { return num_owners_; }
  [[nodiscard]] std::int64_t begin(int rank) const { return shards_up_to(rank); }
  [[nodiscard]] std::int64_t end(int rank) const { return shards_up_to(rank + 1); }
  [[nodiscard]] std::int64_t size(int rank) const { return end(rank) - begin(rank); }
  /// The largest shard of any rank: the first owner's.
  [[nodiscard]] std::int64_t largest() const { return size(num_ranks_ - num_owners_); }
  /// Whether all ranks' shards have the same size.
  [[nodiscard]] bool is_even() const { return num_owners_ == num_ranks_ && size(num_ranks_ - 1) == largest(); }

 private:
  [[nodiscard]] std::int64_t shards_up_to(int rank) const {
    return std::min(std::max(rank - (num_ranks_ - num_owners_), 0) * shard_, extent_);
  }

  std::int64_t extent_;
  int num_ranks_;
  int num_owners_;
  std::int64_t shard_;
};

/// Elements [begin, begin + extent) of unit `unit`, kept at [first, first + extent) of the owner's flat array.
struct UnitRange {
  int unit = 0;
  std::int64_t begin = 0;
  std::int64_t extent = 0;
  std::int64_t first = 0;
};

/// The shards that one rank of n owns, one of each unit. A flat array of these shards holds them in unit order.
class ShardLayout {
 public:
  ShardLayout(const ParameterTable& table, int num_ranks, int rank);

  [[nodiscard]] const Partition& partition(int unit) const { return partitions_.at(static_cast<std::size_t>(unit)); }
  /// The shard of a unit; `first` is the shard's begin in the flat array of shards.
  [[nodiscard]] const UnitRange& shard(int unit) const { return shards_.at(static_cast<std::size_t>(unit)); }
  /// By unit.
  [[nodiscard]] const std::vector<UnitRange>& shards() const { return shards_; }
  /// Elements of all shards.
  [[nodiscard]] std::int64_t extent() const { return extent_; }

 private:
  std::vector<Partition> partitions_;  // by unit
  std::vector<UnitRange> shards_;      // by unit
  std::int64_t extent_ = 0;
};

/// The number of buffers that the units of a slot share, and the buffer of each unit.
///   1 + ahead       for a slot whose units are used one after another; never more than its units
///   held + ahead    for the slots of the transformer's blocks and of their adapters, likewise; 1 for any other slot
///   The i-th unit of a slot uses its buffer i mod buffers.
/// Units without elements need no buffer and are not counted.
/// So held + ahead consecutive units of blocks have different buffers: `held` are in use, the others are being
/// gathered.
class SlotBuffers {
 public:
  struct Buffer {
    std::string name;         ///< "slot 1", or "slot 1, buffer 2"
    std::int64_t extent = 0;  ///< elements of the slot's largest unit
  };

  SlotBuffers(const ParameterTable& table, int ahead, int held = 1);

  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
  /// Index into buffers().
  [[nodiscard]] std::size_t of(int unit) const { return of_unit_[static_cast<std::size_t>(unit)]; }

 private:
  std::vector<Buffer> buffers_;
  std::vector<std::size_t> of_unit_;
};

}  // namespace kozero
