// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// model_step.hpp: a training step in the decoder's order on a ShardedState, with weights and gradients known in
// advance.
//   weights after s updates:  w_s[i] = w_0[i] - sum of the gradients of steps 1..s at i
//   gradient of a step at i:  the sum over micro-steps and busy ranks of addend(step, micro-step, rank, unit, i)
// In a step's last micro-step trailing ranks may be idle: they take part in every gather and reduction. If the
// micro-step is reduced at once, no rank may read an idle rank's addend, so this addend is not zero. All values are
// integers small enough that float adds them exactly in any order. Every element of a unit that the model reads is
// compared with its expected value, and so is every element of the reduced gradient.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include <kozero/zero/sharded_state.hpp>

namespace kozero::test {

/// Tied: the head reads the embedding and adds to its gradient. In blocks: tied, and each block is a unit.
enum class Vocabulary { untied, tied, in_blocks };

struct Shape {
  Vocabulary vocabulary = Vocabulary::untied;
  int micro_steps = 1;
  int idle = 0;         ///< ranks without work in a step's last micro-step
  bool ordered = true;  ///< each micro-step is reduced

  [[nodiscard]] int busy_ranks(int micro_step, int num_ranks) const {
    return micro_step == micro_steps - 1 ? num_ranks - idle : num_ranks;
  }
};

/// Units of uneven extents: an embedding or three blocks of it, three transformer blocks of one slot, and a head.
ParameterTable units_of(Vocabulary vocabulary);

/// The expected weights, the same on all ranks.
class KnownWeights {
 public:
  explicit KnownWeights(const ParameterTable& table);
  [[nodiscard]] float at(int unit, std::int64_t index) const { return of(unit)[static_cast<std::size_t>(index)]; }
  /// The step's gradient at an index, summed over the busy ranks.
  [[nodiscard]] static float gradient(const Shape& shape, int num_ranks, int step, int unit, std::int64_t index);
  void update(const Shape& shape, int num_ranks, int step);
  void shift();

 private:
  [[nodiscard]] const std::vector<float>& of(int unit) const { return values_[static_cast<std::size_t>(unit)]; }
  std::vector<std::vector<float>> values_;  // by unit
};

template <class Scalar>
class ModelStep {
 public:
  ModelStep(const ParameterTable& table, distributed::Communicator& comm, zero::ShardedState<Scalar>& state,
            Shape shape)
      : table_(table),
        comm_(comm),
        state_(state),
        shape_(shape),
        head_(table.num_units() - 1),
        first_block_(shape.vocabulary == Vocabulary::in_blocks ? 3 : 1),
        known_(table) {}

  void fill_weights();
  /// Sets other weights, as loading a file does.
  void reload_weights();
  /// Only the forward pass, as in an evaluation.
  void evaluate();
  /// All micro-steps, the reduced gradient and its norm; then the update, or no update as after non-finite numbers.
  void train(int step, bool skips_update);
  /// This rank will sleep before the forward pass or the norm of step `step`.
  void sleep_once(int step, bool before_norm, std::chrono::milliseconds time) { sleep_ = {step, before_norm, time}; }
  /// The first wrong value; empty if there was none.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  void expect(bool holds, const std::string& what) {
    if (!holds && problem_.empty()) problem_ = "rank " + std::to_string(comm_.rank()) + ": " + what;
  }
  struct Sleep {
    int step = 0;
    bool before_norm = false;
    std::chrono::milliseconds time{0};
  };
  void sleep_where_asked(int step, bool before_norm) const;
  void forward();
  void head_forward_backward(int step, int micro_step);
  void backward(int step, int micro_step);
  void check(int unit, Vector<const Scalar> weights, const char* where);
  void read_vocabulary_down(const char* where);
  /// Adds to a unit's gradient while its weights are held.
  void read_and_add(int unit, int step, int micro_step, const char* where);
  void add(UnitGradient gradient, int unit, int step, int micro_step, bool lookups = false);
  void check_gradients(int step);
  void update(int step);

  const ParameterTable& table_;
  distributed::Communicator& comm_;
  zero::ShardedState<Scalar>& state_;
  Shape shape_;
  int head_;         // its unit
  int first_block_;  // of the transformer
  KnownWeights known_;
  Sleep sleep_;
  std::string problem_;
};

}  // namespace kozero::test
