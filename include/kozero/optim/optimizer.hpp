// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// optimizer.hpp: the interface of optimizers: elementwise updates of flat weights by flat gradients, with state per
// element. The caller's elements form one flat array (its shards of all units, in order). update() takes any contiguous
// part of this array, such as one shard; the bits do not depend on the division into parts. Segments say which elements
// have weight decay.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/precision.hpp>

namespace kozero::optim {

struct Config {
  std::string kind = "adamw";  ///< a name of core/choices.hpp
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0.0;
  double layer_decay = 1.0;  ///< segments_of
};

/// The inputs that differ from step to step.
struct Step {
  std::int64_t number = 1;  ///< from 1
  double lr = 0.0;
  double gradient_scale = 1.0;  ///< factor on the gradient (clipping)
};

/// The weights that an update changes.
template <class Scalar>
struct Target {
  Vector<float> master;
  Vector<Scalar> stored = {};  ///< the weights that a model reads; written if they have 16 bits

  [[nodiscard]] Target part(std::int64_t first, std::int64_t extent) const {
    return {slice(master, first, extent), slice(stored, first, extent)};
  }
};

/// Elements [first, first + extent) of the flat array, all with weight decay or all without, and of one rate.
struct Segment {
  std::int64_t first = 0;
  std::int64_t extent = 0;
  bool decay = false;
  double rate = 1.0;  ///< factor on the step's learning rate
};

/// The segments of a rank's ranges: decay as set for each tensor, none on pads and frozen tensors. Neighbors with equal
/// decay and rate are merged. Pads and frozen tensors have gradients and states of zero, which must not change any
/// weight. With L blocks, the rate of block l = 1 ... L is layer_decay^(L - l), that of the embedding layer_decay^L,
/// and 1 behind the last block.      Howard, Ruder 2018, arXiv:1801.06146; Clark et al. 2020, arXiv:2003.10555.
std::vector<Segment> segments_of(const ParameterTable& table, const std::vector<UnitRange>& ranges,
                                 double layer_decay = 1.0);

/// By tensor of the table: the rates of segments_of.
std::vector<double> layer_rates(const ParameterTable& table, double layer_decay);

/// A named array of state, one value per element of the caller's flat array.
struct NamedState {
  std::string name;  ///< "exp_avg", "exp_avg_sq", "momentum_buffer"
  Vector<float> values;
};

/// An optimizer of weights that a model reads as Scalar.
template <class Scalar>
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Updates flat elements [first, first + target.master.extent(0)). If the states come from a source of Kind::host,
  /// the host's cores run the update, and target and gradient must be in memory that the host reaches.
  virtual void update(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient,
                      const Step& step) = 0;
  [[nodiscard]] virtual std::vector<NamedState> states() const = 0;
};

/// Takes the state of all segments' elements (Memory::optimizer), from `memory` unless it is nullptr. Throws
/// Error(deck) for an unknown kind.
template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_optimizer(const Config& config, std::vector<Segment> segments,
                                                  MemoryLedger& ledger, MemorySource* memory = nullptr);

/// Values of state per trained element: 2 for adamw, 1 for sgd. Throws Error(deck) for an unknown kind.
int num_states(const std::string& kind);

}  // namespace kozero::optim
