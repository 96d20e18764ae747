// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapter_base.hpp: fills the frozen base of adapters, and hashes its values.
// A checkpoint of adapters has no base. The base's identity shows whether a resumed run has the same base: a hash of
// its values in f32, before they are rounded or quantized, so that it does not depend on the files' format, the
// precision or the ranks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/train/engine.hpp>
#include "io/checkpoint/tensor_groups.hpp"

namespace kozero::train {

/// This rank's part of the base. It is filled piece by piece, so that no rank needs it in f32.
class AdapterBase {
 public:
  explicit AdapterBase(Evaluator& evaluator);

  /// Sets a piece's values: its memory is to be filled with the unit's elements from `begin` on, pads with zeros.
  using Values = std::function<void(const io::RangeValues<float>& piece)>;
  /// Calls values for the shard of each unit of the base (a quantized one needs somewhat more), in the order of units,
  /// in pieces of at most `most` elements, a multiple of 64. A shard without elements is one piece.
  void fill(const Values& values, std::int64_t most);
  /// After fill() on all ranks: the base as the model reads it. Returns its identity. Collective.
  std::string publish();

 private:
  /// Adds the hashes of the piece's elements that are in this rank's shard.
  void add_hashes(const io::RangeValues<float>& piece);

  Evaluator& evaluator_;
  const ParameterTable& table_;
  ShardLayout layout_;
  std::vector<std::uint64_t> hashes_;  // by tensor
};

/// Fills the base with the initial values of `seed`. Returns its identity. Collective.
std::string initialize_base(std::uint64_t seed, Evaluator& evaluator);

}  // namespace kozero::train
