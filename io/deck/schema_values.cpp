// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// schema_values.cpp: the values of deck keys: their TOML text, and which values a row of the schema accepts.
// TOML 1.0.0, toml.io/en/v1.0.0
#include <algorithm>
#include <charconv>
#include <cmath>

#include "io/deck/deck.hpp"
#include "io/deck/schema.hpp"
#include "io/posix/readable.hpp"

namespace kozero::io {
namespace {

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(double value) { return toml_number(value); }
std::string text_of(const std::string& value) { return toml_string(value); }
std::string text_of(const WordOrNumber& value) { return value.is_number() ? value.text() : toml_string(value.word()); }

std::string text_of(const RopeScalingKeys& scaling) {
  if (scaling.factor == 1.0) return "\"none\"";
  return "{type = \"llama3\", factor = " + text_of(scaling.factor) +
         ", low_freq_factor = " + text_of(scaling.low_freq_factor) +
         ", high_freq_factor = " + text_of(scaling.high_freq_factor) +
         ", original_seq = " + text_of(scaling.original_seq) + "}";
}

/// Whether a column that a table may leave out has its default, and that is no accepted value (as "" of a name) or 0.
template <class Keys>
bool is_left_out(const ListColumn<Keys>& column, const DeckValue& value) {
  Keys defaults;
  const std::string text = toml_text(value);
  const bool means_none = !accepts(column.accepted, value) || text == "0";
  return !column.is_needed && means_none && text == toml_text(column.value_in(defaults));
}

template <ListTable Keys>
std::string text_of(const Keys& keys) {
  Keys copy = keys;
  std::vector<std::string> texts;
  for (const auto& column : columns_of(keys)) {
    const DeckValue value = column.value_in(copy);
    if (!is_left_out(column, value)) texts.push_back(column.name + " = " + toml_text(value));
  }
  return "{" + joined(texts) + "}";
}

template <class List>
requires(!ListTable<List>) std::string text_of(const List& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(text_of(value));
  return bracketed(texts);
}

std::string escaped_control(char letter) {
  const char* digits = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(letter);
  return std::string("\\u00") + digits[code / 16] + digits[code % 16];
}

constexpr double kFewNumbers = 8;
constexpr std::int64_t kMostPositions = 1 << 24;

bool in_range(const Accepted& accepted, double value) {
  const bool above = accepted.low_open ? value > accepted.low : value >= accepted.low;
  const bool below = accepted.high_open ? value < accepted.high : value <= accepted.high;
  return std::isfinite(value) && above && below;
}

bool one_of(const Accepted& accepted, const std::string& value) {
  if (accepted.words.empty()) return !value.empty();
  return std::find(accepted.words.begin(), accepted.words.end(), value) != accepted.words.end();
}

struct Fits {
  const Accepted& accepted;
  bool operator()(const bool* /*value*/) const { return true; }
  bool operator()(const std::int64_t* value) const { return in_range(accepted, static_cast<double>(*value)); }
  bool operator()(const double* value) const { return in_range(accepted, *value); }
  bool operator()(const std::string* value) const { return one_of(accepted, *value); }
  bool operator()(const WordOrNumber* value) const {
    return value->is_number() ? in_range(accepted, static_cast<double>(value->number()))
                              : one_of(accepted, value->word());
  }
  bool operator()(const std::vector<std::string>* values) const {
    const auto fits = [this](const std::string& value) { return one_of(accepted, value); };
    return (accepted.or_none || !values->empty()) && std::all_of(values->begin(), values->end(), fits);
  }
  bool operator()(const std::array<double, 2>* values) const {
    return in_range(accepted, (*values)[0]) && in_range(accepted, (*values)[1]);
  }
  bool operator()(const RopeScalingKeys* scaling) const {
    const auto finite = [](double number) { return std::isfinite(number); };
    return finite(scaling->factor) && scaling->factor >= 1 && scaling->low_freq_factor > 0 &&
           finite(scaling->high_freq_factor) && scaling->high_freq_factor > scaling->low_freq_factor &&
           scaling->original_seq >= 1 && scaling->original_seq <= kMostPositions;
  }
  template <ListTable Keys>
  bool operator()(const std::vector<Keys>* tables) const {
    return !tables->empty() && std::all_of(tables->begin(), tables->end(), [](Keys keys) {
      return std::ranges::all_of(columns_of(keys), [&](const auto& column) {
        const DeckValue value = column.value_in(keys);
        return is_left_out(column, value) || accepts(column.accepted, value);
      });
    });
  }
};

std::string plain(double number) {
  return number == std::floor(number) ? std::to_string(static_cast<long long>(number)) : toml_number(number);
}

std::string range_text(const Accepted& accepted) {
  if (accepted.high == kNoLimit && accepted.low == -kNoLimit) return "";
  if (accepted.high == kNoLimit) return (accepted.low_open ? " > " : " >= ") + plain(accepted.low);
  if (!accepted.high_open) return std::string(" ").append(plain(accepted.low)).append(" to ") + plain(accepted.high);
  return (accepted.low_open ? " in (" : " in [") + plain(accepted.low) + ", " + plain(accepted.high) + ")";
}

/// a | b | c
std::string choice_of(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " | ") + word;
  return text;
}

std::string integers(const Accepted& accepted) {
  if (accepted.high - accepted.low > kFewNumbers) return "integer" + range_text(accepted);
  std::vector<std::string> numbers;
  for (double number = accepted.low; number <= accepted.high; ++number) numbers.push_back(plain(number));
  return choice_of(numbers);
}

std::string words_text(const Accepted& accepted) {
  if (accepted.words.empty()) return accepted.what;
  return choice_of(accepted.words);
}

struct InWords {
  const Accepted& accepted;
  std::string operator()(const bool* /*value*/) const { return "true | false"; }
  std::string operator()(const std::int64_t* /*value*/) const { return integers(accepted); }
  std::string operator()(const double* /*value*/) const { return "number" + range_text(accepted); }
  std::string operator()(const std::string* /*value*/) const { return words_text(accepted); }
  std::string operator()(const WordOrNumber* /*value*/) const {
    return words_text(accepted) + " | " + integers(accepted);
  }
  std::string operator()(const std::vector<std::string>* /*value*/) const {
    return words_text(accepted) + ", or a list of these";
  }
  std::string operator()(const std::array<double, 2>* /*value*/) const {
    return "list of 2 numbers" + range_text(accepted);
  }
  std::string operator()(const RopeScalingKeys* /*value*/) const {
    return R"(none | {type = "llama3", factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0, )"
           R"(original_seq = 8192} (type and factor needed, 1 <= factor, 0 < low_freq_factor < high_freq_factor))";
  }
  template <ListTable Keys>
  std::string operator()(const std::vector<Keys>* /*value*/) const {
    std::vector<std::string> names;
    for (const auto& column : columns_of(Keys())) names.push_back(column.name);
    return "[[" + accepted.what + "]] tables with " + joined(names) + ", or " + accepted.what + "=[{" + names.front() +
           " = ...}, ...]";
  }
};

struct ColumnsInWords {
  const DeckRow& row;
  template <class Value>
  std::vector<ColumnInWords> operator()(const Value* /*value*/) const {
    return {};
  }
  template <ListTable Keys>
  std::vector<ColumnInWords> operator()(const std::vector<Keys>* /*value*/) const {
    std::vector<ColumnInWords> columns;
    for (const auto& column : columns_of(Keys())) {
      Keys keys;
      const DeckValue value = column.value_in(keys);
      columns.push_back({row.key + "[]." + column.name, column.help, accepted_values(column.accepted, value),
                         column.is_needed                  ? "none: each table gives it"
                         : accepts(column.accepted, value) ? toml_text(value)
                                                           : "not given"});
    }
    return columns;
  }
};

}  // namespace

std::string toml_text(DeckValue value) {
  return std::visit([](const auto* held) { return text_of(*held); }, value);
}

std::string toml_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  const auto exponent = text.find('e');
  if (exponent == std::string::npos) return text.find('.') == std::string::npos ? text + ".0" : text;
  const bool plus = text[exponent + 1] == '+';
  if (text[exponent + 2] == '0') text.erase(exponent + 2, 1);
  if (plus) text.erase(exponent + 1, 1);
  return text;
}

std::string toml_string(const std::string& value) {
  std::string text = "\"";
  for (const char letter : value) {
    if (letter == '"' || letter == '\\') {
      text += std::string("\\") + letter;
    } else if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) {
      text += escaped_control(letter);
    } else {
      text += letter;
    }
  }
  return text + "\"";
}

std::string bracketed(const std::vector<std::string>& words) {
  std::string text = "[";
  text += joined(words);
  text += "]";
  return text;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

const DeckRow* find_row(const std::string& key) {
  const auto& rows = deck_schema();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const DeckRow& each) { return each.key == key; });
  return row == rows.end() ? nullptr : &*row;
}

std::string section_of(const std::string& key) { return key.substr(0, key.rfind('.')); }

std::string name_of(const std::string& key) { return key.substr(key.rfind('.') + 1); }

bool is_of_shape(const std::string& key) {
  static const std::array kOfTraining = {"model.preset",  "model.init",        "model.seq",
                                         "model.dropout", "model.vocab_block", "model.base_dtype"};
  return section_of(key) == "model" && std::find(kOfTraining.begin(), kOfTraining.end(), key) == kOfTraining.end();
}

std::vector<std::string> deck_sections() {
  std::vector<std::string> sections;
  for (const auto& row : deck_schema()) {
    if (sections.empty() || sections.back() != section_of(row.key)) sections.push_back(section_of(row.key));
  }
  return sections;
}

std::vector<std::string> names_in(const std::string& section) {
  std::vector<std::string> names;
  for (const auto& row : deck_schema()) {
    if (section_of(row.key) == section) names.push_back(name_of(row.key));
  }
  return names;
}

bool accepts(const Accepted& accepted, DeckValue value) { return std::visit(Fits{accepted}, value); }

bool accepts(const DeckRow& row, DeckValue value) { return accepts(row.accepted, value); }

Unit unit_of(const DeckRow& row) {
  if (row.key.ends_with("_mib")) return Unit::mib;
  if (row.key.ends_with("_s")) return Unit::seconds;
  return row.key.ends_with("_minutes") ? Unit::minutes : Unit::none;
}

std::optional<double> number_with_unit(const DeckRow& row, const std::string& text) {
  const Unit unit = unit_of(row);
  if (unit == Unit::none) return std::nullopt;
  const auto amount = unit == Unit::mib ? bytes_of_text(text) : seconds_of_text(text);
  if (!amount) return std::nullopt;
  return *amount / (unit == Unit::mib ? 0x1p20 : unit == Unit::minutes ? 60.0 : 1.0);
}

std::string accepted_values(const Accepted& accepted, DeckValue value) { return std::visit(InWords{accepted}, value); }

std::string accepted_values(const DeckRow& row) {
  Deck deck;
  const Unit unit = unit_of(row);
  return accepted_values(row.accepted, row.value_in(deck)) + (unit == Unit::none  ? ""
                                                              : unit == Unit::mib ? ", or a size as 512MiB, 2GB"
                                                                                  : ", or a time as 90s, 10min, 2h");
}

std::vector<ColumnInWords> columns_in_words(const DeckRow& row) {
  Deck deck;
  return std::visit(ColumnsInWords{row}, row.value_in(deck));
}

std::string default_of(const DeckRow& row) {
  return row.default_text.empty() ? text_in(Deck(), row) : row.default_text;
}

std::string text_in(const Deck& deck, const DeckRow& row) {
  Deck copy = deck;
  return toml_text(row.value_in(copy));
}

bool holds_default(const Deck& deck, const DeckRow& row) { return text_in(deck, row) == text_in(Deck(), row); }

void reset(Deck& deck, const DeckRow& row) {
  Deck defaults;
  const auto copy = [&](auto* value) { *value = *std::get<decltype(value)>(row.value_in(defaults)); };
  std::visit(copy, row.value_in(deck));
  deck.origins.erase(row.key);
}

}  // namespace kozero::io
