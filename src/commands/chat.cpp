// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat.cpp: reads questions, keeps the history within the context, and prints answers while they are generated.
#include "src/commands/chat.hpp"
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/data/chat_prompt.hpp>
#include <kozero/data/document_rules.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/train/generator.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "src/commands/generation_report.hpp"

namespace kozero::commands {
namespace {

constexpr std::int64_t kUsualContext = 4096;
constexpr std::size_t kMostLineBytes = std::size_t{1} << 20;

/// The deck's template, or the one beside the tokenizer if the deck has none.
std::string template_of(const run::TrainedModel& trained, const program::DeckArguments& named) {
  const io::Deck& deck = trained.deck();
  const bool is_none = deck.data.chat_template == "none" && !named.gives("data.chat_template");
  const bool has_file = io::is_there(deck.data.tokenizer);
  const std::string found = data::chat_template_of(is_none ? "auto" : deck.data.chat_template,
                                                   has_file ? deck.data.tokenizer : trained.source().tokenizer);
  if (found.empty()) throw Error(Failure::deck, "data.chat_template = \"none\": --chat needs a template");
  return found;
}

/// Refuses text that no template can write. `place` names it.
void require_text(const std::string& text, const std::string& place) {
  const std::size_t good = io::utf8_prefix(text);
  if (good < text.size()) throw Error(Failure::input, fmt::format("{}: not UTF-8 at byte {}", place, good + 1));
  if (text.find('\0') != std::string::npos) throw Error(Failure::input, place + ": has a NUL character");
}

/// The lines of standard input that are not empty.
class Questions {
 public:
  /// The next one, on every rank; nullopt at the end. Collective: rank 0 reads. Throws Error(input), seen by all ranks.
  std::optional<std::string> next(distributed::Communicator& comm) {
    const std::string read = distributed::from_first_rank(comm, [&] { return kGiven + line(); });
    if (read == kGiven) return std::nullopt;
    return read.substr(kGiven.size());
  }

 private:
  std::string line() {
    if (::isatty(STDIN_FILENO) != 0) std::cerr << "> " << std::flush;
    for (std::string text; std::getline(std::cin, text);) {
      ++number_;
      if (text.ends_with('\r')) text.pop_back();
      const std::string place = fmt::format("standard input:{}", number_);
      if (text.size() > kMostLineBytes) throw Error(Failure::input, place + ": longer than 1 MiB");
      require_text(text, place);
      if (text.find_first_not_of(" \t") != std::string::npos) return text;
    }
    if (number_ == 0) throw Error(Failure::input, "--chat: no question on standard input");
    return "";
  }

  const std::string kGiven = "?";  // before a line, since an empty text is the end
  std::int64_t number_ = 0;
};

/// The answer that grows; rank 0 prints it.
class Answer : public train::TokenListener {
 public:
  Answer(const io::Tokenizer& tokenizer, const std::vector<Token>& prompt, bool shows)
      : shown_(tokenizer, prompt, io::ReadableText::Controls::escaped),
        kept_(tokenizer, prompt, io::ReadableText::Controls::kept),
        shows_(shows) {}

  void on_token(std::int64_t /*sequence*/, Token token) override {
    tokens_.push_back(token);
    show(shown_.add(token));
    text_ += kept_.add(token);
  }
  void on_end(std::int64_t /*sequence*/, bool ended_by_token) override {
    show(shown_.finish() + "\n");
    text_ += kept_.finish();
    ended_by_token_ = ended_by_token;
  }

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::vector<Token>& tokens() const { return tokens_; }
  [[nodiscard]] bool ended_by_token() const { return ended_by_token_; }

 private:
  void show(const std::string& text) const {
    if (shows_) std::cout << text << std::flush;
  }

  io::StreamedText shown_, kept_;
  bool shows_;
  std::string text_;
  std::vector<Token> tokens_;
  bool ended_by_token_ = false;
};

/// The prompt's tokens, without the oldest turns if it and an answer of `count` tokens exceed `context`.
std::vector<Token> tokens_within(data::ChatPrompt& prompt, std::int64_t context, std::int64_t count,
                                 std::string& note) {
  const std::int64_t most = context - std::min(count, context / 2);
  std::vector<Token> tokens = prompt.tokens();
  int turns = 0;
  while (std::ssize(tokens) > most && prompt.forget_oldest()) {
    ++turns;
    tokens = prompt.tokens();
  }
  if (turns > 0) {
    note = fmt::format("note         the oldest {} of the conversation {} left out (--context {})\n",
                       turns == 1 ? "turn" : fmt::format("{} turns", turns), turns == 1 ? "is" : "are", context);
  }
  if (std::ssize(tokens) > context) {
    note += fmt::format("note         the question has {} tokens: the model sees its last {} (--context)\n",
                        tokens.size(), context);
  }
  return tokens;
}

}  // namespace

void chat(run::TrainedModel& trained, const io::Tokenizer& tokenizer, const program::DeckArguments& named,
          const ChatArguments& given, const program::JsonOutput& json) {
  distributed::Communicator& control = trained.session().control();
  const std::string name = distributed::from_first_rank(control, [&] { return template_of(trained, named); });
  const auto prompt = distributed::agreed(control, [&] {
    if (given.system) require_text(*given.system, "--system");
    return std::make_unique<data::ChatPrompt>(data::ChatStyle{name, given.system, !given.no_thinking}, tokenizer);
  });
  const std::int64_t seq = trained.settings().model.seq;
  const std::int64_t context = std::min(seq, given.context > 0 ? given.context : kUsualContext);
  auto generator = make_generator(trained, tokenizer.vocab_size(), 1, context, "lower --context");

  const bool is_first = trained.session().is_first_rank();
  Questions questions;
  train::GenerationTimes all;
  nlohmann::ordered_json turns = nlohmann::ordered_json::array();
  const auto conclude = [&] {
    if (!is_first) return;
    nlohmann::ordered_json object = {{"chat_template", name}, {"turns", turns}};
    add_rates(object, all);
    json.print(object);
    std::cerr << rate_line(all) << std::endl;
  };
  const auto next_question = [&]() -> std::optional<std::string> {
    try {
      return questions.next(control);
    } catch (const Error&) {
      if (!turns.empty()) conclude();  // the turns so far
      throw;
    }
  };
  while (const auto question = next_question()) {
    prompt->ask(*question);
    std::string note;
    const std::vector<Token> tokens = tokens_within(*prompt, context, given.count, note);
    const train::GenerationOrder order{.prompts = {tokens},
                                       .count = given.count,
                                       .sampling = given.sampling,
                                       .ends = [&](Token token) { return prompt->ends_answer(token); },
                                       .first_prompt = std::ssize(turns),
                                       .reuses_cache = true};
    Answer answer(tokenizer, tokens, is_first && !json.is_asked());
    all += generator.run(order, answer);
    prompt->answer(answer.text());
    if (!answer.ended_by_token()) note += fmt::format("note         the answer was cut (--tokens {})\n", given.count);
    if (is_first) std::cerr << note << std::flush;
    turns.push_back({{"question", *question},
                     {"answer", answer.text()},
                     {"prompt_ids", tokens},
                     {"ids", answer.tokens()},
                     {"end", answer.ended_by_token() ? "end_of_answer" : "length"}});
  }
  conclude();
}

}  // namespace kozero::commands
