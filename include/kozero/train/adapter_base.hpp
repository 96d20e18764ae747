// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapter_base.hpp: fills weights piece by piece, and the frozen base of adapters with a hash of its values.
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

/// Sets a piece's values: its memory is to be filled with the unit's elements from `begin` on, pads with zeros.
using PieceValues = std::function<void(const io::RangeValues<float>& piece)>;

/// Fills this rank's part of all units but the base that are not in the master, one after another, in pieces of at most
/// `most` elements, so that no rank needs them in f32. A part without elements is one piece. publish() comes after it.
void fill_without_master(Evaluator& evaluator, const PieceValues& values, std::int64_t most);

/// This rank's part of the base.
class AdapterBase {
 public:
  explicit AdapterBase(Evaluator& evaluator);

  /// Fills the base, as fill_without_master(). A quantized base needs somewhat more than the shard of a unit; `most` is
  /// a multiple of 64.
  void fill(const PieceValues& values, std::int64_t most);
  /// After fill() on all ranks: the base as the model reads it. Returns its identity. Collective.
  std::string publish();

 private:
  /// Adds the hashes of the piece's elements that are in this rank's shard.
  void add_hashes(const io::RangeValues<float>& piece);

  Evaluator& evaluator_;
  const ParameterTable& table_;
  ShardLayout layout_;
  std::vector<std::uint64_t> hashes_;  // by tensor of the base
};

/// Fills the base with the initial values of `seed`. Returns its identity. Collective.
std::string initialize_base(std::uint64_t seed, Evaluator& evaluator);

}  // namespace kozero::train
