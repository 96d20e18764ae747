// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_value.cpp: a deck's values as TOML text.     TOML 1.0.0, toml.io/en/v1.0.0
#include <charconv>
#include <cmath>

#include <kozero/io/deck.hpp>
#include <kozero/io/deck_value.hpp>

namespace kozero::io {
namespace {

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(double value) { return toml_number(value); }
std::string text_of(const std::string& value) { return toml_string(value); }

std::string text_of(const RopeScalingKeys& scaling) {
  if (scaling.factor == 1.0) return "\"none\"";
  return "{type = \"llama3\", factor = " + text_of(scaling.factor) +
         ", low_freq_factor = " + text_of(scaling.low_freq_factor) +
         ", high_freq_factor = " + text_of(scaling.high_freq_factor) +
         ", original_seq = " + text_of(scaling.original_seq) + "}";
}

template <class List>
std::string text_of(const List& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(text_of(value));
  return bracketed(texts);
}

std::string escaped_control(char letter) {
  const char* digits = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(letter);
  return std::string("\\u00") + digits[code / 16] + digits[code % 16];
}

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

}  // namespace kozero::io
