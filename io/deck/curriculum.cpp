// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// curriculum.cpp: the deck of a lesson of run.curriculum.
#include "io/deck/schema.hpp"

namespace kozero::io {
namespace {

/// Puts the values that a lesson gives in the places of the deck's.
class LessonDeck {
 public:
  LessonDeck(const Deck& whole, std::size_t lesson)
      : deck_(whole), origin_("curriculum[" + std::to_string(lesson) + "]"), keys_(whole.run.curriculum.at(lesson)) {
    deck_.whole = std::make_shared<const Deck>(whole);
    deck_.lesson = lesson;
  }

  Deck made() {
    put("train.seq", deck_.train.seq, &LessonKeys::seq);
    put("train.micro_batch", deck_.train.micro_batch, &LessonKeys::micro_batch);
    if (put("train.global_batch", deck_.train.global_batch, &LessonKeys::global_batch)) {
      reset(deck_, *find_row("train.accumulate"));
    }
    put("optim.lr", deck_.optim.lr, &LessonKeys::lr);
    put("optim.min_lr", deck_.optim.min_lr, &LessonKeys::min_lr);
    put("optim.schedule", deck_.optim.schedule, &LessonKeys::schedule);
    put("optim.warmup_steps", deck_.optim.warmup_steps, &LessonKeys::warmup_steps);
    put("optim.decay_steps", deck_.optim.decay_steps, &LessonKeys::decay_steps);
    put("optim.freeze", deck_.optim.freeze, &LessonKeys::freeze);
    return deck_;
  }

 private:
  template <class T>
  bool put(const char* key, T& value, T LessonKeys::*of_lesson) {
    if (keys_.*of_lesson == LessonKeys().*of_lesson) return false;
    value = keys_.*of_lesson;
    deck_.origins[key] = origin_;
    return true;
  }

  Deck deck_;
  std::string origin_;
  const LessonKeys keys_;
};

}  // namespace

Deck deck_of_lesson(const Deck& whole, std::size_t lesson) { return LessonDeck(whole, lesson).made(); }

}  // namespace kozero::io
