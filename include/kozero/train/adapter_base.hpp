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

/// Weights are filled in pieces of at most kPieceExtent elements (16 MiB), so that no rank needs its part in f32.
inline constexpr std::int64_t kPieceExtent = std::int64_t{1} << 22;

/// How many pieces a rank's part of a unit has: as many as it needs, at least one, or as many as the rank that needs
/// most, some of them without elements. With `equal` numbers, PieceValues may be collective.
enum class Pieces { own, equal };

/// Fills this rank's part of all units but the base that are not in the master, one after another. publish() comes
/// after it.
void fill_without_master(Evaluator& evaluator, const PieceValues& values, Pieces pieces);

/// This rank's part of the base.
class AdapterBase {
 public:
  explicit AdapterBase(Evaluator& evaluator);

  /// Fills the base, as fill_without_master().
  void fill(const PieceValues& values, Pieces pieces);
  /// After fill() on all ranks: the base as the model reads it. Returns its identity. Collective. Throws Error(input),
  /// seen by all ranks, naming `origin` and the tensor, if a value is not finite.
  std::string publish(const std::string& origin);

 private:
  /// Adds the hashes of the piece's elements that are in this rank's shard, and looks for values that are not finite.
  void examine(const io::RangeValues<float>& piece);

  Evaluator& evaluator_;
  const ParameterTable& table_;
  ShardLayout layout_;
  std::vector<std::uint64_t> hashes_;  // by tensor of the base
  std::string not_finite_;             // the first tensor with such a value
};

/// Fills the base with the initial values of `seed`. Returns its identity. Collective.
std::string initialize_base(std::uint64_t seed, Evaluator& evaluator);

}  // namespace kozero::train
