// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <iterator>
#include <utility>

#include <kozero/dist/agreed.hpp>
#include <kozero/io/whole_file.hpp>

#include "generated_texts.hpp"

namespace kozero::commands {
namespace {

constexpr std::int64_t kMostPromptBytes = std::int64_t{64} << 20;

std::string without_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string standard_input() {
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  if (static_cast<std::int64_t>(text.size()) > kMostPromptBytes) {
    throw Error(Failure::input,
                "the prompt on standard input has more than " + std::to_string(kMostPromptBytes) + " bytes");
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (std::string line = without_newline(text.substr(begin, end - begin)); !line.empty()) {
      lines.push_back(std::move(line));
    }
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::vector<std::string> PromptSource::read(dist::Communicator& comm) const {
  const std::string bytes = dist::from_first_rank(comm, [&] {
    if (lines_file || file) return io::read_whole_file(lines_file ? *lines_file : *file, kMostPromptBytes);
    return text && *text == "-" ? standard_input() : text.value_or("");
  });
  if (!lines_file) {
    const bool is_written_out = text && *text != "-";
    return {is_written_out ? bytes : without_newline(bytes)};
  }
  auto lines = lines_of(bytes);
  if (lines.empty()) throw Error(Failure::input, *lines_file + ": no line with a prompt", Error::Seen::by_all_ranks);
  return lines;
}

GeneratedTexts::GeneratedTexts(const io::Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                               const train::GenerationOrder& order, bool shows)
    : samples_(order.samples), shows_(shows) {
  const auto controls = shows ? io::ReadableText::Controls::escaped : io::ReadableText::Controls::kept;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    for (std::int64_t s = 0; s < samples_; ++s) {
      sequences_.push_back({.stream = io::StreamedText(tokenizer, order.prompts[p], controls)});
      std::string prompt = sequences_.back().stream.add_text(prompts[p]);
      if (shows) sequences_.back().waiting = std::move(prompt);
    }
  }
  head(0);
}

void GeneratedTexts::on_token(std::int64_t sequence, Token token) {
  const auto place = static_cast<std::size_t>(sequence);
  sequences_[place].tokens.push_back(token);
  give(place, sequences_[place].stream.add(token));
}

void GeneratedTexts::on_end(std::int64_t sequence, bool ended_by_token) {
  const auto place = static_cast<std::size_t>(sequence);
  sequences_[place].has_ended = true;
  sequences_[place].ended_by_token = ended_by_token;
  give(place, sequences_[place].stream.finish());
  while (shown_ < sequences_.size() && sequences_[shown_].has_ended) {
    show("\n");
    if (++shown_ < sequences_.size()) head(shown_);
  }
}

void GeneratedTexts::give(std::size_t sequence, const std::string& text) {
  Sequence& mine = sequences_[sequence];
  mine.text += text;
  if (sequence == shown_) {
    show(text);
  } else if (shows_) {
    mine.waiting += text;
  }
}

/// The heading of a sequence, where there are several, and what it has so far.
void GeneratedTexts::head(std::size_t sequence) {
  const auto number = static_cast<std::int64_t>(sequence);
  if (sequences_.size() > 1) {
    show("=== prompt " + std::to_string(number / samples_ + 1) +
         (samples_ > 1 ? ", sample " + std::to_string(number % samples_ + 1) : "") + " ===\n");
  }
  show(std::exchange(sequences_[sequence].waiting, ""));
}

void GeneratedTexts::show(const std::string& text) const {
  if (shows_) std::cout << text << std::flush;
}

nlohmann::ordered_json GeneratedTexts::json() const {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    all.push_back({{"prompt", number / samples_ + 1},
                   {"sample", number % samples_ + 1},
                   {"text", sequences_[i].text},
                   {"tokens", sequences_[i].tokens.size()},
                   {"ids", sequences_[i].tokens},
                   {"end", sequences_[i].ended_by_token ? "end_of_text" : "length"}});
  }
  return all;
}

}  // namespace kozero::commands
