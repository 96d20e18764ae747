// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// choices.cpp: reads and checks rows of multiple-choice items, encodes their endings, and chooses.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/data/choices.hpp>
#include "io/posix/readable.hpp"
#include "src/data/json_files.hpp"
#include "src/data/records.hpp"

namespace kozero::data {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  throw BadRecord(fmt::format("{} is a JSON {}, not text", name, value.type_name()));
}

std::vector<std::string> endings_of(const Json& row) {
  const auto found = row.find("endings");
  if (found == row.end()) throw BadRecord("no \"endings\"");
  if (!found->is_array() || found->size() < 2) throw BadRecord("\"endings\" is not a list of two or more texts");
  std::vector<std::string> endings;
  for (const auto& each : *found) {
    endings.push_back(text_of(each, fmt::format("endings[{}]", endings.size())));
    if (endings.back().empty()) throw BadRecord(fmt::format("endings[{}] is empty", endings.size() - 1));
  }
  return endings;
}

/// A number, or its text: HellaSwag's files have both. Absent, null and "": no label.
std::optional<std::size_t> label_of(const Json& row, std::size_t num_endings) {
  const auto found = row.find("label");
  if (found == row.end() || found->is_null() || *found == "") return std::nullopt;
  for (std::size_t label = 0; label < num_endings; ++label) {
    if (*found == label || *found == std::to_string(label)) return label;
  }
  throw BadRecord(fmt::format("\"label\" is {}; accepted: 0 to {}, the number of an ending", io::json_excerpt(*found),
                              num_endings - 1));
}

ChoiceItem item_of(std::string_view line) {
  const Json row = json_tree(line);
  const auto context = row.find(row.contains("context") ? "context" : "ctx");
  if (context == row.end()) throw BadRecord("no \"context\" or \"ctx\"");
  ChoiceItem item{.context = text_of(*context, fmt::format("\"{}\"", context.key())), .endings = endings_of(row)};
  item.label = label_of(row, item.endings.size());
  return item;
}

/// Code points of well-formed UTF-8, which JSON guarantees.
double characters_of(std::string_view text) {
  return static_cast<double>(std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

}  // namespace

std::vector<ChoiceItem> parse_choices(const std::string& text, const std::string& path) {
  constexpr std::size_t kMostNamed = 8;  // of further bad rows
  std::vector<ChoiceItem> items;
  std::string problem;
  std::vector<std::int64_t> bad;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      ChoiceItem item = item_of(line);
      item.line = number;
      if (!items.empty() && item.label.has_value() != items.front().label.has_value()) {
        throw BadRecord(fmt::format("{} label, and line {} has {}", item.label ? "a" : "no", items.front().line,
                                    item.label ? "none" : "one"));
      }
      items.push_back(std::move(item));
    } catch (const BadRecord& reason) {
      bad.push_back(number);
      if (problem.empty()) problem = fmt::format("{}:{}: {}", path, number, reason.what());
    }
  }
  if (bad.size() > 1) {
    const auto others = std::span(bad).subspan(1);
    problem += fmt::format("; {} more bad {}: {}{}", others.size(), others.size() == 1 ? "row" : "rows",
                           fmt::join(others.first(std::min(others.size(), kMostNamed)), ", "),
                           others.size() > kMostNamed ? ", ..." : "");
  }
  if (problem.empty() && items.empty()) problem = path + ": no rows";
  if (!problem.empty()) throw Error(Failure::input, io::on_one_line(problem));
  return items;
}

ScoredTokens choice_tokens(const std::string& context, const std::string& ending, const io::Tokenizer& tokenizer,
                           std::int64_t seq) {
  std::vector<Token> tokens = tokenizer.encode(io::stripped_at_end(context));
  const std::vector<Token> whole = tokenizer.encode(context + " " + ending);
  ScoredTokens scored;
  const auto before = std::min(std::ssize(tokens), std::ssize(whole));
  tokens.insert(tokens.end(), whole.begin() + before, whole.end());
  scored.scored = std::ssize(whole) - before;
  if (before == 0 && tokens.size() == whole.size()) {  // nothing precedes the ending
    const Token begin = tokenizer.end_of_text();
    if (begin < 0) throw Error(Failure::input, "no context, and the tokenizer has no end-of-text token");
    if (!whole.empty() && whole.front() == begin) --scored.scored;
    if (whole.empty() || whole.front() != begin) tokens.insert(tokens.begin(), begin);
  }
  if (scored.scored <= 0) throw Error(Failure::input, "an ending has no token behind those of the context");
  if (scored.scored > seq) {
    throw Error(Failure::input,
                fmt::format("an ending has {} tokens, more than the {} positions of the model", scored.scored, seq));
  }
  const std::int64_t beyond = std::max<std::int64_t>(0, std::ssize(tokens) - seq - 1);
  scored.tokens.assign(tokens.begin() + beyond, tokens.end());
  scored.is_cut = beyond > 0;
  return scored;
}

Choice choice_of(const ChoiceItem& item, std::span<const double> log_likelihoods) {
  require(item.endings.size() == log_likelihoods.size(), "choice_of: one log-likelihood per ending");
  const auto per_character = [&](std::size_t i) { return log_likelihoods[i] / characters_of(item.endings[i]); };
  Choice choice;
  for (std::size_t i = 1; i < log_likelihoods.size(); ++i) {
    if (log_likelihoods[i] > log_likelihoods[choice.by_sum]) choice.by_sum = i;
    if (per_character(i) > per_character(choice.by_character)) choice.by_character = i;
  }
  return choice;
}

}  // namespace kozero::data
