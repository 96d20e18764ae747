// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// model_step.cpp: known weights and gradients, and the acquire, release and gradient calls in the decoder's order.
#include <cmath>
#include <thread>
#include <variant>

#include <kozero/core/precision.hpp>

#include "model_step.hpp"
#include "thread_mpi.hpp"

namespace kozero::test {
namespace {

float initial_at(int unit, std::int64_t index) { return static_cast<float>((unit * 37 + index * 5) % 91 - 45); }

float addend(int step, int micro_step, int rank, int unit, std::int64_t index) {
  return static_cast<float>((step * 31 + micro_step * 7 + rank * 3 + unit + index) % 11 - 5);
}

/// The number of additions to a unit's gradient per micro-step.
int contributions(const Shape& shape, int unit) {
  const int of_vocabulary = shape.vocabulary == Vocabulary::in_blocks ? 3 : 1;
  return shape.vocabulary != Vocabulary::untied && unit < of_vocabulary ? 2 : 1;
}

bool is_a_pad(const ParameterTable& table, int unit, std::int64_t index) {
  for (const auto& row : table.rows()) {
    if (row.unit == unit && index >= row.offset && index < row.offset + row.extent()) return false;
  }
  return true;
}

Parameter vector_row(const std::string& name, std::int64_t extent, bool overwritten) {
  Parameter row;
  row.name = name;
  row.shape = {extent};
  row.overwritten = overwritten;
  return row;
}

}  // namespace

ParameterTable units_of(Vocabulary vocabulary) {
  ParameterTable table;
  const auto add = [&](int slot, std::int64_t extent, bool overwritten, VocabularyUse use = VocabularyUse::none) {
    const std::string number = std::to_string(table.num_units());
    table.add_unit("unit " + number, slot, use);
    table.add(vector_row("bias " + number, 70, false));
    table.add(vector_row("weight " + number, extent, overwritten));
  };
  if (vocabulary == Vocabulary::in_blocks) {
    for (const std::int64_t extent : {330, 330, 130}) add(kEmbeddingSlot, extent, true, VocabularyUse::both);
  } else {
    add(kEmbeddingSlot, 700, false);
  }
  for (int block = 0; block < 3; ++block) add(kBlockSlot, 330, true);
  add(kHeadSlot, 130, true);
  return table;
}

KnownWeights::KnownWeights(const ParameterTable& table) {
  for (int unit = 0; unit < table.num_units(); ++unit) {
    auto& values = values_.emplace_back();
    for (std::int64_t i = 0; i < table.unit(unit).extent; ++i) values.push_back(initial_at(unit, i));
  }
}

float KnownWeights::gradient(const Shape& shape, int num_ranks, int step, int unit, std::int64_t index) {
  float sum = 0.0F;
  for (int micro_step = 0; micro_step < shape.micro_steps; ++micro_step) {
    for (int rank = 0; rank < shape.busy_ranks(micro_step, num_ranks); ++rank)
      sum += addend(step, micro_step, rank, unit, index);
  }
  return sum * static_cast<float>(contributions(shape, unit));
}

void KnownWeights::update(const Shape& shape, int num_ranks, int step) {
  for (int unit = 0; unit < static_cast<int>(values_.size()); ++unit) {
    auto& values = values_[static_cast<std::size_t>(unit)];
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] -= gradient(shape, num_ranks, step, unit, static_cast<std::int64_t>(i));
    }
  }
}

void KnownWeights::shift() {
  for (auto& values : values_) {
    for (float& value : values) value += 1.0F;
  }
}

template <class Scalar>
void ModelStep<Scalar>::fill_weights() {
  for (const auto& range : state_.weights().master().layout().shards()) {
    const auto mine = state_.weights().master().shard(range.unit);
    for (std::int64_t i = 0; i < range.extent; ++i) mine(i) = known_.at(range.unit, range.begin + i);
  }
  state_.weights().publish();
}

template <class Scalar>
void ModelStep<Scalar>::reload_weights() {
  known_.shift();
  state_.weights().wait_until_reusable();
  fill_weights();
}

template <class Scalar>
void ModelStep<Scalar>::check(int unit, Vector<const Scalar> weights, const char* where) {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < table_.unit(unit).extent; ++i) {
    if (static_cast<float>(weights(i)) != static_cast<float>(Scalar(known_.at(unit, i)))) ++wrong;
  }
  expect(wrong == 0, std::to_string(wrong) + " weights of " + table_.unit(unit).name + " are wrong in " + where);
}

template <class Scalar>
void ModelStep<Scalar>::add(UnitGradient gradient, int unit, int step, int micro_step, bool lookups) {
  const bool idle = comm_.rank() >= shape_.busy_ranks(micro_step, comm_.size());
  if (idle && !shape_.ordered && micro_step > 0)
    return;  // its addend would be added to the rank's sum, which is reduced
  for (const auto& row : table_.rows()) {
    if (row.unit != unit) continue;
    for (std::int64_t i = row.offset; i < row.offset + row.extent(); ++i) {
      float& sum = gradient.values(i);
      const bool overwrites = gradient.begins && row.overwritten && !lookups;
      sum = (overwrites ? 0.0F : sum) + addend(step, micro_step, comm_.rank(), unit, i);
    }
  }
}

template <class Scalar>
void ModelStep<Scalar>::sleep_where_asked(int step, bool before_norm) const {
  if (step == sleep_.step && before_norm == sleep_.before_norm) std::this_thread::sleep_for(sleep_.time);
}

template <class Scalar>
void ModelStep<Scalar>::forward() {
  for (int unit = 0; unit < head_; ++unit) {
    check(unit, state_.acquire(unit), "forward");
    sleep_at_random();
    state_.release(unit);
  }
}

template <class Scalar>
void ModelStep<Scalar>::read_vocabulary_down(const char* where) {
  for (int unit = first_block_ - 1; unit >= 0; --unit) {
    check(unit, state_.acquire(unit), where);
    sleep_at_random();
    state_.release(unit);
  }
}

template <class Scalar>
void ModelStep<Scalar>::read_and_add(int unit, int step, int micro_step, const char* where) {
  const auto weights = state_.acquire(unit);
  add(state_.gradient(unit), unit, step, micro_step);
  sleep_at_random();
  check(unit, weights, where);
  state_.release(unit);
  state_.gradient_ready(unit);
}

template <class Scalar>
void ModelStep<Scalar>::evaluate() {
  forward();
  check(head_, state_.acquire(head_), "evaluation");
  if (shape_.vocabulary != Vocabulary::untied) read_vocabulary_down("evaluation");
  state_.release(head_);
}

template <class Scalar>
void ModelStep<Scalar>::head_forward_backward(int step, int micro_step) {
  const auto head = state_.acquire(head_);
  const bool holds_embedding = shape_.vocabulary == Vocabulary::tied;
  const auto embedding = holds_embedding ? state_.acquire(0) : head;
  if (shape_.vocabulary == Vocabulary::in_blocks) {
    read_vocabulary_down("the head");
    for (int unit = 0; unit < first_block_; ++unit) read_and_add(unit, step, micro_step, "the head's way back");
  }
  add(state_.gradient(head_), head_, step, micro_step);
  if (holds_embedding) add(state_.gradient(0), 0, step, micro_step);
  check(head_, head, "the head");
  if (holds_embedding) check(0, embedding, "the head");
  sleep_at_random();
  if (holds_embedding) state_.release(0);
  state_.release(head_);
  state_.gradient_ready(head_);
}

template <class Scalar>
void ModelStep<Scalar>::backward(int step, int micro_step) {
  for (int unit = head_ - 1; unit >= first_block_; --unit) read_and_add(unit, step, micro_step, "backward");
  for (int unit = 0; unit < first_block_; ++unit) {
    const bool apart = shape_.vocabulary == Vocabulary::in_blocks;
    add(apart ? state_.lookup_gradient(unit) : state_.gradient(unit), unit, step, micro_step, apart);
    apart ? state_.lookup_gradient_ready(unit) : state_.gradient_ready(unit);
  }
}

template <class Scalar>
void ModelStep<Scalar>::check_gradients(int step) {
  double squares = 0.0;
  for (int unit = 0; unit < table_.num_units(); ++unit) {
    for (std::int64_t i = 0; i < table_.unit(unit).extent; ++i) {
      if (!is_a_pad(table_, unit, i)) squares += std::pow(known_.gradient(shape_, comm_.size(), step, unit, i), 2);
    }
  }
  for (const auto& owned : state_.update_ranges()) {
    const auto& range = owned.range;
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < range.extent; ++i) {
      const std::int64_t at = range.begin + i;
      const float wanted =
          is_a_pad(table_, range.unit, at) ? 0.0F : known_.gradient(shape_, comm_.size(), step, range.unit, at);
      if (owned.gradient(i) != wanted) ++wrong;
    }
    expect(wrong == 0, std::to_string(wrong) + " sums of " + table_.unit(range.unit).name + " are wrong");
  }
  // For the norm, all ranks wait for each other; a step without it must be ordered too.
  if (step % 3 == 0) return;
  expect(std::abs(state_.gradients().norm() - std::sqrt(squares)) < 1e-9 * std::sqrt(squares), "the norm is wrong");
}

template <class Scalar>
void ModelStep<Scalar>::update(int step) {
  known_.update(shape_, comm_.size(), step);
  for (const auto& owned : state_.update_ranges()) {
    for (std::int64_t i = 0; i < owned.range.extent; ++i) {
      owned.master(i) = known_.at(owned.range.unit, owned.range.begin + i);
      if constexpr (has_master<Scalar>) owned.stored(i) = Scalar(owned.master(i));
    }
  }
  sleep_at_random();
  state_.publish_update();
}

template <class Scalar>
void ModelStep<Scalar>::train(int step, bool skips_update) {
  for (int micro_step = 0; micro_step < shape_.micro_steps; ++micro_step) {
    state_.gradients().begin_micro_step({micro_step, shape_.micro_steps, shape_.busy_ranks(micro_step, comm_.size())});
    sleep_where_asked(step, false);
    forward();
    head_forward_backward(step, micro_step);
    backward(step, micro_step);
  }
  state_.finish_gradients();
  sleep_where_asked(step, true);
  check_gradients(step);
  if (!skips_update) update(step);
}

template class ModelStep<float>;
template class ModelStep<Bfloat16>;

}  // namespace kozero::test
