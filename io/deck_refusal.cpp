// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_refusal.cpp: one-line refusals of a deck.
#include <kozero/io/deck_refusal.hpp>
#include <kozero/io/deck_schema.hpp>
#include <kozero/io/readable.hpp>

namespace kozero::io {
namespace {

constexpr std::size_t kLongest = 100;  // characters of a user's key and value that a message repeats

std::string shortened(const std::string& text) {
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

}  // namespace

void refuse(const std::string& where, const std::string& what, const std::string& why) {
  const std::string subject = what.empty() ? "" : shortened(what) + ": ";
  throw Error(Failure::deck, on_one_line(where + ": " + subject + why));
}

void refuse_value(const Deck& deck, const std::string& key, const std::string& why) {
  refuse(origin_of(deck, key), key + " = " + text_in(deck, *find_row(key)), why);
}

void refuse_missing(const Deck& deck, const std::string& key, const std::string& why) {
  refuse(deck.source, key, "missing; " + why);
}

std::string origin_of(const Deck& deck, const std::string& key) {
  const auto origin = deck.origins.find(key);
  return origin == deck.origins.end() ? deck.source : origin->second;
}

std::string did_you_mean(const std::string& given, const std::vector<std::string>& names) {
  const std::string nearest = nearest_name(given, names.data(), names.data() + names.size());
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace kozero::io
