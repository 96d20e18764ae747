// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// initial_model.cpp: completes the deck by the weights' shape and tokenizer, and loads the weights.
#include <fmt/format.h>
#include <variant>

#include <kozero/core/error.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/huggingface/import.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/settings.hpp>
#include "io/deck/check.hpp"
#include "io/deck/schema.hpp"
#include "io/text/tokenizer.hpp"
#include "src/commands/initial_model.hpp"
#include "src/commands/weights_source.hpp"

namespace kozero::commands {

namespace {

std::string named(const io::Deck& deck) { return "model.init = \"" + deck.model.init + "\""; }

/// Copies the keys of the model that `from` gives and `deck` leaves out. A preset speaks for all of them.
void fill_silent_keys(io::Deck& deck, io::Deck from, const std::string& origin) {
  if (deck.model.preset != "none") return;
  for (const auto& row : io::deck_schema()) {
    if (io::section_of(row.key) != "model" || deck.is_set(row.key) || !from.is_set(row.key)) continue;
    const io::DeckValue value = row.value_in(from);
    std::visit(
        [&](auto* into) {
          using Pointer = decltype(into);
          *into = *std::get<Pointer>(value);
        },
        row.value_in(deck));
    deck.origins[row.key] = origin;
  }
}

void refuse_disagreement(const io::Deck& deck, model::Config theirs) {
  const model::Config mine = train::model_config(deck, 0);
  if (mine.arch != "gpt2") theirs.seq = mine.seq;
  io::CheckpointRecord saved;
  saved.model = train::model_json(theirs);
  io::CheckpointRecord now;
  now.model = train::model_json(mine);
  std::string differences;
  for (const auto& difference : train::disagreements(saved, now)) {
    differences += (differences.empty() ? "" : "; ") + difference;
  }
  if (differences.empty()) return;
  throw Error(Failure::deck, named(deck) + ": the deck disagrees with it: " + differences +
                                 "; keys that are left out are taken from there");
}

/// The ids of data.tokenizer, 0 where only the text tells.
std::int64_t ids_of(const std::string& tokenizer) {
  if (tokenizer == "bpe") return 0;
  if (const auto size = io::bpe_size(tokenizer)) return *size;
  return io::make_tokenizer(tokenizer)->vocab_size();
}

void choose_tokenizer(io::Deck& deck, const WeightsSource& source) {
  const bool reads_text = !deck.data.text.empty();
  if (!reads_text && deck.data.tokens.empty()) return;
  if (!deck.is_set("data.tokenizer")) {
    if (source.tokenizer.empty() && reads_text) {
      throw Error(Failure::deck, named(deck) + ": no tokenizer comes with it: " + source.no_tokenizer +
                                     ": give data.tokenizer, or data.tokens instead of data.text");
    }
    if (source.tokenizer.empty()) return;
    deck.data.tokenizer = source.tokenizer;
    deck.origins["data.tokenizer"] = "model.init";
  }
  const std::int64_t ids = ids_of(deck.data.tokenizer);
  if (deck.model.vocab == 0 || ids <= deck.model.vocab) return;
  throw Error(Failure::deck,
              fmt::format("data.tokenizer = \"{}\": its {} ids are more than the {} of {}; left out, the model's own "
                          "tokenizer is taken",
                          deck.data.tokenizer, ids, deck.model.vocab, named(deck)));
}

}  // namespace

io::Deck with_initial_model(io::Deck deck, dist::Communicator& comm) {
  if (deck.model.init == train::kRandom) return deck;
  const WeightsSource source = find_weights(deck.model.init, comm);
  dist::agreed(comm, [&] {
    const model::Config shape = shape_of(source);
    fill_silent_keys(deck, huggingface::imported_deck(shape, "", ""), "model.init");
    io::check_deck(deck);
    refuse_disagreement(deck, shape);
    choose_tokenizer(deck, source);
  });
  return deck;
}

std::string begin_weights(const io::Deck& deck, train::Engine& engine, dist::Communicator& control) {
  if (deck.model.init == train::kRandom) {
    engine.initialise(static_cast<std::uint64_t>(deck.run.seed));
    return "";
  }
  const WeightsSource source = find_weights(deck.model.init, control);
  load(source, engine, control);
  return fmt::format("init         weights of {} ({}), a fresh optimizer", source.path, name_of(source.kind));
}

}  // namespace kozero::commands
