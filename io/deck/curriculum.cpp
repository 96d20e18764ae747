// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// curriculum.cpp: the deck of a stage of run.curriculum.
#include "io/deck/schema.hpp"

namespace kozero::io {
namespace {

/// Puts the values that a stage gives in the places of the deck's.
class StageDeck {
 public:
  StageDeck(const Deck& whole, std::size_t stage)
      : deck_(whole), origin_("curriculum[" + std::to_string(stage) + "]"), keys_(whole.run.curriculum.at(stage)) {
    deck_.whole = std::make_shared<const Deck>(whole);
    deck_.stage = stage;
  }

  Deck made() {
    put("train.seq", deck_.train.seq, &StageKeys::seq);
    put("train.micro_batch", deck_.train.micro_batch, &StageKeys::micro_batch);
    if (put("train.global_batch", deck_.train.global_batch, &StageKeys::global_batch)) {
      reset(deck_, *find_row("train.accumulate"));
    }
    put("optim.lr", deck_.optim.lr, &StageKeys::lr);
    put("optim.min_lr", deck_.optim.min_lr, &StageKeys::min_lr);
    put("optim.schedule", deck_.optim.schedule, &StageKeys::schedule);
    put("optim.warmup_steps", deck_.optim.warmup_steps, &StageKeys::warmup_steps);
    put("optim.decay_steps", deck_.optim.decay_steps, &StageKeys::decay_steps);
    put("optim.freeze", deck_.optim.freeze, &StageKeys::freeze);
    return deck_;
  }

 private:
  template <class T>
  bool put(const char* key, T& value, T StageKeys::*of_stage) {
    if (keys_.*of_stage == StageKeys().*of_stage) return false;
    value = keys_.*of_stage;
    deck_.origins[key] = origin_;
    return true;
  }

  Deck deck_;
  std::string origin_;
  const StageKeys keys_;
};

}  // namespace

Deck deck_of_stage(const Deck& whole, std::size_t stage) { return StageDeck(whole, stage).made(); }

}  // namespace kozero::io
