// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// prepare.cpp: the command `prepare`: the token shards of a deck's data, written before training.
#include <fmt/format.h>
#include <iostream>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/program/arguments.hpp>

namespace kozero::commands {

using program::OptionParser;

void prepare(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("prepare");
  std::vector<std::string> paths;
  data::PrepareOrder order;
  parser.add("paths", paths).required().at_least_values(2);
  parser.add("--tokenizer", order.tokenizer, "bytes, bpe:N (N ids learned from the text), or a tokenizer's file")
      .type_name("NAME");
  std::string filter;
  parser.add("--text-field", order.rules.text_field, "key of JSON lines, column of Parquet (default: text)")
      .type_name("NAME");
  parser.add("--filter", filter, "documents of JSON lines and Parquet to keep, such as \"int_score >= 3\"")
      .type_name("RULE");
  parser.add_flag("--skip-bad", order.rules.skip_bad,
                  "leave out records that are damaged or have no text, and count them");
  parser.add_flag("--deduplicate", order.deduplicate, "of documents with equal text, keep only the first");
  parser.add("--val-fraction", order.val_fraction, "share of the text kept for validation").type_name("X");
  parser.parse(arguments);
  if (environment.size() > 1) {
    throw Error(Failure::deck, "prepare runs on one rank: start it without -n", Error::Seen::by_all_ranks);
  }
  order.rules.filter = data::parse_filter(filter, "--filter");
  order.folder = paths.back();
  order.text.assign(paths.begin(), paths.end() - 1);
  const data::PreparedTokens made = data::prepare(order);
  std::cout << fmt::format("{}{}: {} training and {} validation tokens ({}, vocabulary {}) in {} shards\n",
                           escaped(order.folder), made.reused ? " (already made)" : "", made.train.tokens,
                           made.val.tokens, made.tokenizer, made.vocab,
                           made.train.files.size() + made.val.files.size());
  for (const auto& note : data::notes_on(order, made)) std::cout << "note: " << escaped(note) << "\n";
}

}  // namespace kozero::commands
