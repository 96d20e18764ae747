// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// curriculum.cpp: runs of several parts: the deck of a lesson of run.curriculum, and the checks of run.curriculum and
// data.grow.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "io/deck/check.hpp"
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
    if (!keys_.sources.empty()) choose_sources();
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

  /// Leaves the sources that the lesson names, with its weights.
  void choose_sources() {
    std::vector<SourceKeys> chosen;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < deck_.data.source.size(); ++i) names.push_back(deck_.data.name_of_source(i));
    if (names.empty()) {
      refuse(origin_of(deck_, "run.curriculum"), origin_ + ".sources = " + bracketed(keys_.sources),
             "the deck has no [[data.source]]; give each source there, with its name");
    }
    for (const std::string& text : keys_.sources) {
      const auto colon = text.rfind(':');
      const std::string name = text.substr(0, colon);
      const auto found = std::ranges::find(names, name);
      if (found == names.end()) {
        refuse(origin_of(deck_, "run.curriculum"), origin_ + ".sources = " + bracketed(keys_.sources),
               "no source is called " + name + "; accepted: " + joined(names) + did_you_mean(name, names));
      }
      SourceKeys source = deck_.data.source[static_cast<std::size_t>(found - names.begin())];
      source.name = name;
      if (colon != std::string::npos) source.weight = weight_of(text.substr(colon + 1));
      if (colon != std::string::npos) source.tokens = 0;
      chosen.push_back(std::move(source));
    }
    deck_.data.source = std::move(chosen);
    deck_.origins["data.source"] = origin_;
  }

  [[nodiscard]] double weight_of(const std::string& text) const {
    double weight = 0.0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), weight);
    if (problem == std::errc() && end == text.data() + text.size() && std::isfinite(weight) && weight > 0.0) {
      return weight;
    }
    refuse(origin_of(deck_, "run.curriculum"), origin_ + ".sources = " + bracketed(keys_.sources),
           "\"" + text + "\" is no weight; accepted: number > 0");
  }

  Deck deck_;
  std::string origin_;
  const LessonKeys keys_;
};

}  // namespace

void check_curriculum(const Deck& deck) {
  for (std::size_t i = 0; i < deck.run.curriculum.size(); ++i) {
    const LessonKeys& lesson = deck.run.curriculum[i];
    if ((lesson.steps > 0) == (lesson.tokens > 0)) {
      refuse(origin_of(deck, "run.curriculum"), "curriculum[" + std::to_string(i) + "]",
             lesson.steps > 0 ? "it gives steps and tokens; accepted is one of them"
                              : "it has no length; give its steps or tokens, an integer >= 1");
    }
    if (!lesson.sources.empty() && deck.data.learns_tokenizer()) {
      refuse_value(deck, "data.tokenizer",
                   "lessons with sources of their own would learn several tokenizers; give a file");
    }
    Deck of_lesson = deck_of_lesson(deck, i);
    check_deck(of_lesson);
  }
  if (!deck.run.curriculum.empty() && deck.checkpoint.every == 0) {
    refuse_value(deck, "checkpoint.every",
                 "a lesson begins with the checkpoint of the lesson before; accepted: integer >= 1");
  }
}

void check_growth(const Deck& deck) {
  if (!deck.data.grow) return;
  const auto refuse_with = [&](const std::string& key, const std::string& why) {
    refuse_value(deck, "data.grow", "accepted is false if " + beside(deck, key) + ": " + why);
  };
  if (deck.run.epochs > 0)
    refuse_with("run.epochs", "the length of an epoch is not known before it begins; give run.steps");
  if (!deck.run.curriculum.empty()) refuse_with("run.curriculum", "lessons have data of their own");
  if (deck.data.is_mixture()) refuse_with("data.source", "a mixture has no epochs");
  if (!deck.data.has_text()) refuse_with("data.text", "only text is looked for again");
  if (deck.checkpoint.every == 0) refuse_with("checkpoint.every", "an epoch begins with a checkpoint");
  if (deck.data.learns_tokenizer()) {
    refuse_with("data.tokenizer", "a learned tokenizer would change with the text; give its file");
  }
}

Deck deck_of_lesson(const Deck& whole, std::size_t lesson) { return LessonDeck(whole, lesson).made(); }

}  // namespace kozero::io
