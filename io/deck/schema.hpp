// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// schema.hpp: the table of deck keys: type, accepted values, default and meaning of each key.
// Decks are read, checked, written and documented from this table. A row describes a key: its member of a Deck, which
// has the key's type and default, and the accepted values. To add a key, add a member to deck.hpp and a row to
// schema.cpp. To add a list of tables, add a struct of its keys and a vector of them to deck.hpp, the vector to
// DeckValue, the columns to schema_lists.cpp and a row to schema.cpp.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "io/deck/deck.hpp"

namespace kozero::io {

/// Points at the member of a Deck that holds a key's value.
using DeckValue =
    std::variant<bool*, std::int64_t*, double*, std::string*, WordOrNumber*, std::vector<std::string>*,
                 std::array<double, 2>*, RopeScalingKeys*, std::vector<SourceKeys>*, std::vector<LessonKeys>*>;

/// The value as TOML; reading it gives the same bits: 12, 1e-4, "gpt2", ["a", "b"].
std::string toml_text(DeckValue value);

std::string toml_number(double value);
std::string toml_string(const std::string& value);

/// a, b, c
std::string joined(const std::vector<std::string>& words);

/// [a, b, c]
std::string bracketed(const std::vector<std::string>& words);

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// The accepted values. For a number, or each number of a pair: a range. For a text: one of `words`; if `words` is
/// empty, any text, described in messages as `what`. For a word or number: one of `words`, or an integer in the range.
/// For a list of tables, `what` is its key.
struct Accepted {
  double low = -kNoLimit;
  double high = kNoLimit;
  bool low_open = false;
  bool high_open = false;
  std::vector<std::string> words = {};
  std::string what = {};
  bool or_none = false;  ///< for a list: an empty list is accepted too
};

/// The effect on the bits of a resumed run if the value is not that of the checkpoint.
enum class Effect {
  none,   ///< none, or one that CheckpointRecord reports by itself (model, data, exactness)
  bits,   ///< other bits
  length  ///< other bits if the learning rate depends on the run's length
};

struct DeckRow {
  std::string key;               ///< "zero.stage"
  DeckValue (*value_in)(Deck&);  ///< the key's member
  Accepted accepted;
  std::string help;
  std::string default_text = "";  ///< the meaning of a missing key, if the Deck's default does not say it
  bool is_first = false;          ///< listed by `kozero keys` without --all
  Effect effect = Effect::none;
};

/// A key of the tables in a list of tables: [[data.source]] has the columns text and repeat.
template <class Keys>
struct ListColumn {
  std::string name;
  DeckValue (*value_in)(Keys&);  ///< the member of one table
  Accepted accepted;
  std::string help;
  bool is_needed = false;  ///< required in each table
};

/// The columns of a list, chosen by the type of its tables.
const std::vector<ListColumn<SourceKeys>>& columns_of(const SourceKeys&);
const std::vector<ListColumn<LessonKeys>>& columns_of(const LessonKeys&);

template <class Keys>
concept ListTable = requires(const Keys& keys) {
  columns_of(keys);
};

/// The texts that document a column; its key is "data.source[].text".
struct ColumnInWords {
  std::string key, help, accepted, default_text;
};

/// The columns of the row's list; empty for other rows.
std::vector<ColumnInWords> columns_in_words(const DeckRow& row);

/// Our key for another program's key ("hidden_size" -> "model.dim"), and our value of a key for another program's value
/// ("zero.offload_optimizer", "cpu" -> "host"); "" if there is none (peer_words.cpp).
std::string key_of_peer(const std::string& word);
std::string value_of_peer(const std::string& key, const std::string& word);
/// What differs between another program's key and ours, or why there is none; "" if nothing does.
std::string note_on_peer(const std::string& word);

/// All rows, in the order of the written deck.
const std::vector<DeckRow>& deck_schema();

/// The row of a key, or nullptr.
const DeckRow* find_row(const std::string& key);

/// "zero" of "zero.stage", "stage" of "zero.stage"; "model.lora" and "rank" of "model.lora.rank".
std::string section_of(const std::string& key);
std::string name_of(const std::string& key);

/// Whether a published preset defines the key.
bool is_of_shape(const std::string& key);

/// The sections in order, and the names of a section's keys.
std::vector<std::string> deck_sections();
std::vector<std::string> names_in(const std::string& section);

/// Whether a value is in a range or set.
bool accepts(const Accepted& accepted, DeckValue value);
bool accepts(const DeckRow& row, DeckValue value);

/// "0 | 1 | 2 | 3", "number >= 0", "list of 2 numbers in [0, 1)", "path of a folder"; `value` gives the type.
std::string accepted_values(const Accepted& accepted, DeckValue value);
std::string accepted_values(const DeckRow& row);

/// The unit of a key's number, given by the end of its name. A value with a unit ("512MiB", "10min") is accepted too.
enum class Unit { none, mib, seconds, minutes };
Unit unit_of(const DeckRow& row);

/// A text with a unit as a number in the row's unit; nullopt if the row has no unit or the text is not such a value.
std::optional<double> number_with_unit(const DeckRow& row, const std::string& text);

/// The meaning of a missing key: "the preset's", "1e-4".
std::string default_of(const DeckRow& row);

/// The value of a row in a deck, as TOML.
std::string text_in(const Deck& deck, const DeckRow& row);

/// Whether the deck holds the row's default, given or not.
bool holds_default(const Deck& deck, const DeckRow& row);

/// Puts the row's default into the deck and removes its origin.
void reset(Deck& deck, const DeckRow& row);

}  // namespace kozero::io
