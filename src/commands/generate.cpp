// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// generate.cpp: the command `generate`: reads prompts, samples continuations with a cache, and prints them in order; or
// hands over to chat.
#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/generator.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/text/tokenizer.hpp"
#include "src/commands/chat.hpp"
#include "src/commands/generation_report.hpp"
#include "src/commands/trained_tokenizer.hpp"

namespace kozero::commands {

using program::DeckArguments;
using program::JsonOutput;
using program::Option;
using program::OptionParser;
using run::TrainedModel;

namespace {

/// The source of the prompts; at most one member is set.
struct PromptSource {
  std::optional<std::string> text;        ///< "-": standard input
  std::optional<std::string> file;        ///< one prompt
  std::optional<std::string> lines_file;  ///< one prompt per line

  /// The prompts, without the newline at the end; empty lines of lines_file are skipped. Collective: rank 0 reads.
  /// Throws Error(input), seen by all ranks.
  [[nodiscard]] std::vector<std::string> read(distributed::Communicator& comm) const;
};

/// Prints texts in the order of the prompts: the first unfinished text is printed while it grows; later texts wait.
class GeneratedTexts : public train::TokenListener {
 public:
  /// `shows`: this rank prints.
  GeneratedTexts(const io::Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                 const train::GenerationOrder& order, bool shows);

  void on_token(std::int64_t sequence, Token token) override;
  void on_end(std::int64_t sequence, bool ended_by_token) override;

  /// One object per sequence: prompt, sample, text (only the continuation), tokens, ids, end.
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  struct Sequence {
    io::StreamedText stream;
    std::string text = {};  // the continuation
    std::string waiting = {};
    std::vector<Token> tokens = {};
    bool has_ended = false;
    bool ended_by_token = false;
  };

  void give(std::size_t sequence, const std::string& text);
  void show(const std::string& text) const;
  void head(std::size_t sequence);

  std::int64_t samples_;
  bool shows_;
  std::vector<Sequence> sequences_;
  std::size_t shown_ = 0;  // the sequence that is being printed
};

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

std::vector<std::string> PromptSource::read(distributed::Communicator& comm) const {
  const std::string bytes = distributed::from_first_rank(comm, [&] {
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
  const auto index = static_cast<std::size_t>(sequence);
  sequences_[index].tokens.push_back(token);
  give(index, sequences_[index].stream.add(token));
}

void GeneratedTexts::on_end(std::int64_t sequence, bool ended_by_token) {
  const auto index = static_cast<std::size_t>(sequence);
  sequences_[index].has_ended = true;
  sequences_[index].ended_by_token = ended_by_token;
  give(index, sequences_[index].stream.finish());
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

/// Prints the heading of a sequence, if there are several, and its text so far.
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

/// The keys that generate reads, besides the model's shape. Without train.precision it computes in f32.
const std::vector<std::string> kApplied = {"model.init", "data.tokenizer", "data.chat_template",  "train.precision",
                                           "comm.",      "zero.stage",     "zero.prefetch_units", "run.threads",
                                           "run.device", "run.products",   "run.tuning",          "run.deterministic"};

struct GenerateArguments {
  DeckArguments named;
  std::string adapter;
  PromptSource prompts;
  bool chats = false;
  ChatArguments chat;  // has count and sampling, also for texts
  std::int64_t samples = 1;
  std::int64_t batch = 8;
  bool past_end = false;
  JsonOutput json;
};

using Refusal = std::function<std::string(const std::string& text)>;

/// Accepts integers >= `least`; otherwise returns one line with the reason.
Refusal integer_from(std::int64_t least) {
  return [=](const std::string& text) -> std::string {
    const std::optional<std::int64_t> value = program::integer_in(text);
    return value && *value >= least ? "" : '"' + text + "\": accepted: integer >= " + std::to_string(least);
  };
}

Refusal number_from(double least, double most, const std::string& accepted) {
  return [=](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool fits = !text.empty() && end == text.c_str() + text.size() && value >= least && value <= most;
    return fits ? "" : '"' + text + "\": accepted: " + accepted;
  };
}

/// The options for texts, which --chat excludes.
std::vector<Option> add_texts(OptionParser& parser, GenerateArguments& given) {
  const Option prompt = parser
                            .add("--prompt", given.prompts.text,
                                 "the text to continue; -: standard input; none: a new text, behind the "
                                 "tokenizer's end-of-text token, or a newline if it has none")
                            .type_name("TEXT");
  const Option file = parser
                          .add("--prompt-file", given.prompts.file,
                               "a file with the text to continue; of one newline at its end nothing is kept")
                          .type_name("FILE")
                          .excludes(prompt);
  const Option lines = parser
                           .add("--prompts", given.prompts.lines_file,
                                "a file with a text to continue in each line; empty lines are skipped")
                           .type_name("FILE")
                           .excludes(prompt)
                           .excludes(file);
  return {prompt,
          file,
          lines,
          parser.add("--samples", given.samples, "continuations of each text").check(integer_from(1)),
          parser.add("--batch", given.batch, "texts that are generated at once, at most").check(integer_from(1)),
          parser.add_flag("--past-end", given.past_end, "do not stop at an end-of-text token")};
}

struct NamedOption {
  std::string name;
  Option option;
};

/// --chat, and the options for it alone, which it returns.
std::vector<NamedOption> add_chat(OptionParser& parser, GenerateArguments& given, const std::vector<Option>& texts) {
  Option chats =
      parser.add_flag("--chat", given.chats,
                      "answer each line of standard input, as the next turn of one conversation, with the "
                      "run's data.chat_template or that of an override (auto: the one beside the tokenizer)");
  for (const Option& each : texts) chats.excludes(each);
  return {
      {"--system", parser.add("--system", given.chat.system, "with --chat: the system message").type_name("TEXT")},
      {"--no-thinking", parser.add_flag("--no-thinking", given.chat.no_thinking,
                                        "with --chat: answers of qwen3 begin with an empty <think> block")},
      {"--context", parser
                        .add("--context", given.chat.context,
                             "with --chat: tokens of the conversation that the model sees, at most; beyond, the oldest "
                             "turns are left out; 0: model.seq, at most 4096")
                        .check(integer_from(0))}};
}

void add_sampling(OptionParser& parser, train::Sampling& sampling) {
  parser
      .add("--repetition-penalty", sampling.repetition_penalty,
           "divides positive logits of tokens that the text has, and multiplies negative ones; 1: none")
      .check(number_from(1e-6, 1e6, "number from 1e-6 to 1e6"));
  parser.add("--temperature", sampling.temperature, "divides the logits; 0 takes the likeliest token")
      .check(number_from(0.0, 1e30, "finite number >= 0"));
  parser.add("--top-k", sampling.top_k, "pick from the K likeliest tokens; 0: from all").check(integer_from(0));
  parser.add("--top-p", sampling.top_p, "of these, pick from the likeliest that together have this probability")
      .check(number_from(0.0, 1.0, "number from 0 to 1"));
  parser.add("--min-p", sampling.min_p, "of these, pick from those with this share of the largest probability")
      .check(number_from(0.0, 1.0, "number from 0 to 1"));
  parser.add("--seed", sampling.seed, "of the random numbers").check(integer_from(0));
}

GenerateArguments read_arguments(const Arguments& arguments) {
  GenerateArguments given;
  OptionParser parser("generate");
  given.named.add_to(parser, kApplied);
  program::add_adapter_option(parser, given.adapter);
  const auto of_texts = add_texts(parser, given);
  const auto of_chat = add_chat(parser, given, of_texts);
  parser
      .add("--tokens", given.chat.count,
           "new tokens of each text or answer, at most; those beyond model.seq see the last "
           "model.seq tokens, which are run anew for each")
      .check(integer_from(0));
  add_sampling(parser, given.chat.sampling);
  given.json.add_to(parser);
  parser.parse(arguments);
  given.named.require_applied("generate", kApplied);
  for (const auto& [name, option] : of_chat) {
    if (given.chats || !option.is_given()) continue;
    throw Error(Failure::deck, fmt::format("generate: {} is for --chat", name), Error::Seen::by_all_ranks);
  }
  return given;
}

/// The prompt's tokens; for an empty prompt the token that begins documents.
std::vector<Token> tokens_of(const io::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<Token> tokens = tokenizer.encode(prompt);
  if (tokens.empty() && tokenizer.end_of_text() >= 0) tokens.push_back(tokenizer.end_of_text());
  return tokens.empty() ? tokenizer.line_end() : tokens;
}

train::GenerationOrder order_of(const GenerateArguments& given, const io::Tokenizer& tokenizer,
                                const std::vector<std::string>& prompts) {
  train::GenerationOrder order;
  order.samples = given.samples;
  order.count = given.chat.count;
  order.sampling = given.chat.sampling;
  if (!given.past_end) order.ends = [&](Token token) { return tokenizer.ends_text(token); };
  for (const auto& prompt : prompts) order.prompts.push_back(tokens_of(tokenizer, prompt));
  return order;
}

/// A note on the longest prompt if it exceeds model.seq tokens, else "".
std::string note_on_long_prompts(const train::GenerationOrder& order, std::int64_t seq) {
  const std::int64_t longest = order.longest() - order.count;
  if (longest <= seq) return "";
  return fmt::format("note         a prompt has {} tokens: the model sees its last {} (model.seq)\n", longest, seq);
}

}  // namespace

void generate(const distributed::Environment& environment, const Arguments& arguments) {
  const GenerateArguments given = read_arguments(arguments);
  TrainedModel trained(given.named.path, given.named.overrides, environment, train::Use::generation, given.adapter);
  const auto tokenizer = open_tokenizer(trained, given.named);
  if (given.chats) return chat(trained, *tokenizer, given.named, given.chat, given.json);
  const auto prompts = given.prompts.read(trained.session().control());
  const auto order = order_of(given, *tokenizer, prompts);

  const std::int64_t seq = trained.settings().model.seq;
  const bool is_first = environment.rank() == 0;
  if (is_first) std::cerr << note_on_long_prompts(order, seq);
  auto generator = make_generator(trained, tokenizer->vocab_size(), std::min(given.batch, order.num_sequences()),
                                  std::min(order.longest(), seq), "lower --batch or --tokens");
  GeneratedTexts texts(*tokenizer, prompts, order, is_first && !given.json.is_asked());
  const auto times = generator.run(order, texts);
  if (!is_first) return;
  nlohmann::ordered_json json = {{"texts", texts.json()}};
  add_rates(json, times);
  given.json.print(json);
  std::cerr << rate_line(times) << std::endl;
}

}  // namespace kozero::commands
