// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// schema_lists.cpp: the keys of the tables in a deck's lists: data.source and run.curriculum.
#include "io/deck/accepted.hpp"
#include "io/deck/schema.hpp"

namespace kozero::io {
namespace {

/// The address of member `Value` in a table of data.source.
template <auto Value>
DeckValue of_source(SourceKeys& source) {
  return &(source.*Value);
}

/// The same in a table of run.curriculum.
template <auto Value>
DeckValue of_lesson(LessonKeys& lesson) {
  return &(lesson.*Value);
}

}  // namespace

const std::vector<ListColumn<SourceKeys>>& columns_of(const SourceKeys& /*source*/) {
  using K = SourceKeys;
  constexpr double kMostRepeats = 1000;
  static const std::vector<ListColumn<K>> columns = {
      {"text", of_source<&K::text>, text("path of a file or a folder"), "the source's text, as data.text", true},
      {"repeat", of_source<&K::repeat>, from_to(1, kMostRepeats),
       "times that an epoch has the source's training text; its validation text counts once"},
      {"name", of_source<&K::name>, text("text"), "name of the source in logs and metrics"},
      {"weight", of_source<&K::weight>, above(0),
       "share of the samples that come from the source, relative to the other sources; all sources give one, or none"},
      {"tokens", of_source<&K::tokens>, from_to(1, kMany),
       "instead of weight: how many tokens of the mixture come from the source, relative to the other sources"},
      {"epochs", of_source<&K::epochs>, from_to(0, kMany),
       "with weights: the most passes over the source's training text that a run, or a lesson of it, may make; 0: no "
       "limit"},
      {"filter", of_source<&K::filter>, text("COLUMN SIGN NUMBER"), "instead of data.filter"},
  };
  return columns;
}

const std::vector<ListColumn<LessonKeys>>& columns_of(const LessonKeys& /*lesson*/) {
  using K = LessonKeys;
  static const std::vector<ListColumn<K>> columns = [] {
    std::vector<ListColumn<K>> all = {
        {"steps", of_lesson<&K::steps>, from_to(1, kMany), "optimizer steps of the lesson; give steps or tokens"},
        {"tokens", of_lesson<&K::tokens>, from_to(1, kExactTokens), "the same in tokens, rounded up to whole steps"}};
    all.push_back({"sources", of_lesson<&K::sources>, text("name of a data.source, or name:weight"),
                   "which of data.source the lesson mixes, and their weights"});
    const auto add = [&](const char* name, DeckValue (*value_in)(K&), const char* key) {
      all.push_back({name, value_in, find_row(key)->accepted, std::string("instead of ") + key});
    };
    add("seq", of_lesson<&K::seq>, "train.seq");
    add("global_batch", of_lesson<&K::global_batch>, "train.global_batch");
    add("micro_batch", of_lesson<&K::micro_batch>, "train.micro_batch");
    add("lr", of_lesson<&K::lr>, "optim.lr");
    add("min_lr", of_lesson<&K::min_lr>, "optim.min_lr");
    add("schedule", of_lesson<&K::schedule>, "optim.schedule");
    add("warmup_steps", of_lesson<&K::warmup_steps>, "optim.warmup_steps");
    add("decay_steps", of_lesson<&K::decay_steps>, "optim.decay_steps");
    add("freeze", of_lesson<&K::freeze>, "optim.freeze");
    return all;
  }();
  return columns;
}

}  // namespace kozero::io
