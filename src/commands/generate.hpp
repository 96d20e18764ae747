// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// generate.hpp: the prompts of `generate` and the output of their continuations. Rank 0 reads the prompts and prints.
// Texts appear in the order of the prompts: the first unfinished one is shown as it grows, later ones wait.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <kozero/dist/communicator.hpp>
#include <kozero/train/generator.hpp>
#include "io/text/tokenizer.hpp"

namespace kozero::commands {

/// Where the prompts come from: at most one of these is given.
struct PromptSource {
  std::optional<std::string> text;        ///< "-": standard input
  std::optional<std::string> file;        ///< one prompt
  std::optional<std::string> lines_file;  ///< a prompt a line

  /// Without the newline at the end; of lines_file the lines that are not empty. Collective: rank 0 reads. Throws
  /// Error(input), seen by all ranks.
  [[nodiscard]] std::vector<std::string> read(dist::Communicator& comm) const;
};

class GeneratedTexts : public train::TokenListener {
 public:
  /// `shows`: prints what comes, on this rank.
  GeneratedTexts(const io::Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                 const train::GenerationOrder& order, bool shows);

  void on_token(std::int64_t sequence, Token token) override;
  void on_end(std::int64_t sequence, bool ended_by_token) override;

  /// One object a sequence: prompt, sample, text (the continuation alone), tokens, ids, end.
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
  std::size_t shown_ = 0;  // the sequence that is shown as it comes
};

}  // namespace kozero::commands
