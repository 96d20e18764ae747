// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat.hpp: `generate --chat`: a conversation with trained weights.
//   line of standard input -> next question -> ids of the chat template -> answer on standard output -> history
// When the conversation grows beyond the context, its oldest turns are left out.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include <kozero/program/arguments.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/sampling.hpp>
#include "io/text/tokenizer.hpp"

namespace kozero::commands {

struct ChatArguments {
  std::optional<std::string> system;
  bool no_thinking = false;
  std::int64_t context = 0;  ///< tokens, at most model.seq; 0: model.seq, at most 4096
  std::int64_t count = 200;  ///< most tokens of an answer
  train::Sampling sampling;
};

/// Answers until standard input ends. Rank 0 reads and prints, and with --json prints the whole conversation at the
/// end. Collective. Throws Error(deck), seen by all ranks, if there is no chat template or the tokenizer lacks its
/// special tokens; Error(input) for a line that is not UTF-8 text, behind the answers before it, or if there is no
/// line.
void chat(run::TrainedModel& trained, const io::Tokenizer& tokenizer, const program::DeckArguments& named,
          const ChatArguments& given, const program::JsonOutput& json);

}  // namespace kozero::commands
