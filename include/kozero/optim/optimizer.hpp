// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// optimizer.hpp: elementwise updates of flat weights by flat gradients, with state per element.
// The caller's elements form one flat array (its pieces of all units, in order). update() is given any contiguous part
// of it, so one piece at a time; the same bits result however the array is cut. Decay and frozen flags are Segments
// inside.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/stored_vector.hpp>
#include <kozero/core/unit_range.hpp>

namespace kozero::optim {

struct Config {
  std::string kind = "adamw";  ///< adamw, sgd
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0.0;
};

/// What differs from step to step.
struct Step {
  std::int64_t number = 1;  ///< from 1
  double lr = 0.0;
  double gradient_scale = 1.0;  ///< the gradient counts times this (clipping)
};

/// The weights that an update changes.
struct Target {
  Vector<float> master;
  StoredVector stored = {};  ///< the same as a network reads them; written where it reads 16 bits

  [[nodiscard]] Target part(std::int64_t first, std::int64_t extent) const {
    return {slice(master, first, extent), slice(stored, first, extent)};
  }
};

/// Elements [first, first + extent) of the flat array with equal flags.
struct Segment {
  std::int64_t first = 0;
  std::int64_t extent = 0;
  bool decay = false;
  bool frozen = false;
};

/// The segments of a rank's ranges: tensors' flags, pads without decay; neighbours with equal flags merged.
std::vector<Segment> segments_of(const ParameterTable& table, const std::vector<UnitRange>& ranges);

/// A named array of state, over the caller's flat array.
struct NamedState {
  std::string name;  ///< "exp_avg", "exp_avg_sq", "momentum_buffer"
  Vector<float> values;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Updates flat elements [first, first + target.master.extent(0)).
  virtual void update(std::int64_t first, const Target& target, Vector<const float> gradient, const Step& step) = 0;
  [[nodiscard]] virtual std::vector<NamedState> states() const = 0;
};

/// Takes the state of all segments' elements (Memory::optimizer). Throws Error(deck) for an unknown kind.
std::unique_ptr<Optimizer> make_optimizer(const Config& config, std::vector<Segment> segments, MemoryLedger& ledger);

}  // namespace kozero::optim
