// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// prepare.cpp: the command `prepare`: the token shards of a deck's data, written before training, and a look at them.
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/data/token_shard.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/program/arguments.hpp>
#include "io/deck/deck.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::commands {

using program::OptionParser;

namespace {

/// One line on standard error: on a terminal it changes in place, elsewhere a new one comes every 30 seconds.
class ProgressLine {
 public:
  void show(std::int64_t done, std::int64_t all) {
    const auto text = progress_.due(done, all);
    if (!text) return;
    std::cerr << (is_terminal_ ? "\r\x1b[K" + *text : *text + "\n") << std::flush;
    is_shown_ = is_terminal_;
  }
  ~ProgressLine() {
    if (is_shown_) std::cerr << "\r\x1b[K" << std::flush;
  }

 private:
  bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  data::ProgressText progress_{is_terminal_ ? 1.0 : 30.0, is_terminal_ ? 0.2 : 30.0};
  bool is_shown_ = false;
};

/// Each token on one of several background colors in turn, or between bars. Tokens of answers have green ones, other
/// tokens of conversations gray ones; without colors, answers are in double brackets. Tokens that end inside a
/// character are shown with the one that completes it.
class ShownTokens {
 public:
  ShownTokens(const io::Tokenizer& tokenizer, bool in_color)
      : text_(tokenizer, {}, io::ReadableText::Controls::escaped), in_color_(in_color) {}

  enum class Kind { text, question, answer };
  void add(Token token, Kind kind) {
    const std::string part = text_.add(token);
    if (!in_color_ && (kind == Kind::answer) != in_answer_) shown_ += in_answer_ ? "]]" : "[[";
    in_answer_ = kind == Kind::answer;
    if (part.empty()) return;
    const auto& colors = kBackgrounds[static_cast<std::size_t>(kind)];
    shown_ += in_color_ ? colors[count_++ % colors.size()] + part + "\x1b[0m" : part + "|";
  }
  std::string finish() {
    shown_ += text_.finish();
    return shown_ + (in_answer_ && !in_color_ ? "]]" : "");
  }

 private:
  static constexpr std::array<std::array<const char*, 3>, 3> kBackgrounds = {
      {{"\x1b[30;48;5;153m", "\x1b[30;48;5;223m", "\x1b[30;48;5;157m"},
       {"\x1b[30;48;5;250m", "\x1b[30;48;5;254m", "\x1b[30;48;5;252m"},
       {"\x1b[30;48;5;114m", "\x1b[30;48;5;157m", "\x1b[30;48;5;120m"}}};

  io::StreamedText text_;
  bool in_color_;
  bool in_answer_ = false;
  std::size_t count_ = 0;
  std::string shown_;
};

/// The tokens from position `first` of their shard on.
std::string shown_tokens(std::span<const Token> tokens, std::int64_t first, const io::Tokenizer& tokenizer,
                         const std::optional<std::vector<data::TokenRange>>& answers, bool in_color) {
  using Kind = ShownTokens::Kind;
  ShownTokens shown(tokenizer, in_color);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int64_t position = first + static_cast<std::int64_t>(i);
    const bool is_answer = answers && std::ranges::any_of(*answers, [&](const auto& range) {
                             return range.first <= position && position < range.end;
                           });
    shown.add(tokens[i], is_answer ? Kind::answer : answers ? Kind::question : Kind::text);
  }
  return shown.finish();
}

/// The first documents of the training tokens, the beginning of each.
void show_documents(const data::PreparedTokens& made, std::int64_t most) {
  constexpr std::int64_t kMostTokens = 400;
  const auto tokenizer = io::make_tokenizer(made.tokenizer_file);
  const bool in_color = ::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  std::int64_t shown = 0;
  for (const auto& file : made.train.files) {
    const data::TokenShard shard(file, made.vocab);
    auto starts = data::recorded_documents(shard).value_or(std::vector<std::int64_t>());
    starts.push_back(shard.num_tokens());
    const auto answers = data::recorded_answers(shard);
    for (std::size_t i = 0; i + 1 < starts.size() && shown < most; ++i, ++shown) {
      const std::int64_t all = starts[i + 1] - starts[i];
      std::vector<Token> tokens(static_cast<std::size_t>(std::min(all, kMostTokens)));
      shard.read(starts[i], tokens);
      std::cout << fmt::format("\ndocument {}, {} tokens\n", shown, all)
                << shown_tokens(tokens, starts[i], *tokenizer, answers, in_color);
      std::cout << (all > kMostTokens ? fmt::format(" ... {} more\n", all - kMostTokens) : "\n");
    }
  }
}

}  // namespace

void prepare(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("prepare");
  std::vector<std::string> paths;
  std::string filter, chat_template = "none";
  std::int64_t num_shown = 0;
  data::PrepareOrder order;
  parser.add("paths", paths).required().at_least_values(2);
  parser
      .add("--tokenizer", order.tokenizer,
           "bytes, chars (those of the text), bpe:N (N ids learned from it), or a tokenizer's file")
      .type_name("NAME");
  parser.add("--text-field", order.rules.text_field, "key of JSON lines, column of Parquet").type_name("NAME");
  parser.add("--filter", filter, "documents of JSON lines and Parquet to keep, such as \"int_score >= 3\"")
      .type_name("RULE");
  parser
      .add("--chat-template", chat_template,
           "records are conversations: auto (the template in the tokenizer's folder), chatml, qwen2, qwen2.5, qwen3, "
           "llama3 or plain")
      .type_name("NAME");
  parser.add_flag("--skip-bad", order.rules.skip_bad,
                  "leave out records that are damaged or have no text, and count them");
  parser.add_flag("--deduplicate", order.deduplicate, "of documents with equal text, keep only the first");
  parser.add("--val-fraction", order.val_fraction, "share of the text kept for validation").type_name("X");
  parser.add("--shard-tokens", order.shard_tokens, "tokens of a shard").type_name("N");
  parser.add("--threads", order.threads, "threads that encode").type_name("N").default_text("one per core");
  parser.add("--show", num_shown, "print the tokens of the first N documents, each beginning").type_name("N");
  parser.parse(arguments);
  const auto comm = distributed::make_control_communicator(environment.world(), io::Deck().comm.timeout_s);
  order.comm = comm.get();
  distributed::agreed(*comm, [&] {
    order.rules.filter = data::parse_filter(filter, "--filter");
    order.rules.chat_template = data::chat_template_of(chat_template, order.tokenizer);
  });
  order.folder = paths.back();
  order.text.assign(paths.begin(), paths.end() - 1);
  const bool is_first = environment.rank() == 0;
  order.say = [](const std::string& line) { std::cerr << escaped(line) << "\n"; };
  const data::PreparedTokens made = [&] {
    ProgressLine line;
    if (is_first) order.progress = [&](std::int64_t done, std::int64_t all) { line.show(done, all); };
    return data::prepare(order);
  }();
  if (!is_first) return;
  std::cout << fmt::format("{}{}: {} training and {} validation tokens ({}, vocabulary {}) in {} shards\n",
                           escaped(order.folder), made.reused ? " (already made)" : "", made.train.tokens,
                           made.val.tokens, made.tokenizer, made.vocab,
                           made.train.files.size() + made.val.files.size());
  if (!made.chat_template.empty()) {
    const std::int64_t trained = made.train.trained + made.val.trained, all = made.train.tokens + made.val.tokens;
    std::cout << fmt::format("{} conversations ({}): {} tokens of answers are trained, {:.1f} %\n",
                             made.counts.documents, made.chat_template, trained,
                             100.0 * static_cast<double>(trained) / static_cast<double>(all));
  }
  for (const auto& note : data::notes_on(order, made)) std::cout << "note: " << escaped(note) << "\n";
  if (num_shown > 0) show_documents(made, num_shown);
}

}  // namespace kozero::commands
