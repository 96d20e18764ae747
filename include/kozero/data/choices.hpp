// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// choices.hpp: multiple-choice items in JSON lines, and the tokens of their endings.
//   {"context": "The sky is", "endings": ["blue.", "a fish."], "label": 0}      or "ctx", as in HellaSwag's files
// Rules of lm-evaluation-harness (Gao et al. 2024, doi:10.5281/zenodo.12608602) for output_type multiple_choice:
//   text               context + " " + ending; white space at the context's end goes to the ending
//   tokens             the context's alone, then those of the text behind as many tokens; without context, end-of-text
//   choice             the ending with the largest log-likelihood, for acc_norm divided by its Unicode characters;
//                      the first of equals
// Other members of a row are ignored. The label is a number or its text, counted from 0, and may be absent or empty.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kozero/core/views.hpp>
#include "io/text/tokenizer.hpp"

namespace kozero::data {

struct ChoiceItem {
  std::int64_t line = 0;  ///< in the file, from 1
  std::string context;
  std::vector<std::string> endings;       ///< two or more, none empty
  std::optional<std::size_t> label = {};  ///< the right ending
};

/// The items in `text`, the bytes of the file `path`; empty lines are skipped. Either all of them have a label or none.
/// Throws Error(input), "PATH:LINE: REASON", with the lines of further bad rows.
std::vector<ChoiceItem> parse_choices(const std::string& text, const std::string& path);

/// Tokens of which the last `scored` are an ending's.
struct ScoredTokens {
  std::vector<Token> tokens;
  std::int64_t scored = 0;
  bool is_cut = false;  ///< the text has more tokens before these
};

/// The tokens of one ending, of which a model of `seq` positions can see the last `seq` + 1. Throws Error(input),
/// without the file's name, if the ending has no token of its own or more than `seq`.
ScoredTokens choice_tokens(const std::string& context, const std::string& ending, const io::Tokenizer& tokenizer,
                           std::int64_t seq);

/// The endings chosen by log-likelihood, and by that per character.
struct Choice {
  std::size_t by_sum = 0;
  std::size_t by_character = 0;
};

Choice choice_of(const ChoiceItem& item, std::span<const double> log_likelihoods);

}  // namespace kozero::data
