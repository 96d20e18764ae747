// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// document_rules.hpp: which records of JSON lines and Parquet files are documents, and what was left out.
//   a record -> its text in `text_field` -> a document, unless the filter, an empty text or a duplicate leaves it out
// Formats whose files are one document each (plain text) have no records.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kozero::data {

/// Keeps records whose number in `column` compares with `bound` as `comparison` says. Without a column it keeps all.
struct NumberFilter {
  enum class Comparison { less, at_most, equal, not_equal, at_least, greater };

  std::string column = {};
  Comparison comparison = Comparison::equal;
  double bound = 0.0;

  /// Of integers up to 64 bits, exactly: a long double has them all.
  [[nodiscard]] bool keeps(long double number) const;
};

/// "int_score >= 3", with <, <=, ==, !=, >= or >; "" keeps all. Throws Error(deck) naming `key` for other text.
NumberFilter parse_filter(const std::string& text, const std::string& key);

struct DocumentRules {
  std::string text_field = "text";  ///< the JSON object's key, or Parquet's column
  NumberFilter filter = {};
  std::string chat_template = {};  ///< records are conversations, which this template writes; "" for other text
  bool skip_bad = false;  ///< leave out records that are no documents, and count them; otherwise each is an error
};

/// The template that data.chat_template gives: "" for "none". "auto" is the template whose text is in the folder of the
/// tokenizer's file, in chat_template.jinja or tokenizer_config.json. Throws Error(deck) for another name, and if the
/// folder has no known template.
std::string chat_template_of(const std::string& given, const std::string& tokenizer);

/// Counts of a corpus that was read to its end.
struct DocumentCounts {
  std::int64_t documents = 0;  ///< that were read, plain text files included
  std::int64_t empty = 0;      ///< records with an empty text
  std::int64_t filtered = 0;   ///< records that the filter leaves out
  std::int64_t duplicates = 0;
  std::int64_t bad = 0;                      ///< records or damaged ends of files that `skip_bad` leaves out
  std::vector<std::string> bad_places = {};  ///< "corpus.jsonl: row 7: no field \"text\"", the first few
  /// Files that are JSON lines by what they contain, though their names do not say so: how many, and the first few.
  std::int64_t unnamed_json = 0;
  std::vector<std::string> unnamed_json_files = {};

  void add_bad(const std::string& place);
  void add_unnamed_json(const std::string& path);
};

/// "left out records: 2 duplicate, 3 bad (corpus.jsonl: row 7: ...)"; "" if nothing was.
std::string listed(const DocumentCounts& counts);
/// "read as JSON lines, which their names do not say: notes.txt, ..."; "" if there are none.
std::string listed_unnamed_json(const DocumentCounts& counts);

}  // namespace kozero::data
