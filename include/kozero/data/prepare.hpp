// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// prepare.hpp: text -> token shards for training and validation in a folder, and tokens.json, which describes them.
//   FOLDER/train_000000.bin ... val_000000.bin ... tokenizer.json tokens.json, and sources.json, the hashes of the
//   files that were read (src/data/source_hashes.hpp); beside each shard .xxh3, its hashes, and .documents, where
//   documents begin in it, and .answers, which tokens of conversations are trained (src/data/split_writer.hpp)
// Validation has val_fraction of the text. Of records (JSON lines, Parquet) it has whole documents, chosen by a hash of
// their text, so that equal documents are on one side and a document keeps its side when the corpus grows. Of plain
// text it has stretches spread evenly over the corpus: at the end of each of k equal parts, of at least 64 KiB if the
// corpus is large enough; of the sources of a mixture (splits_sources), each is a corpus of its own. Each document, and
// each change between training and validation, begins with the tokenizer's end-of-text. The folder is written under a
// temporary name, then renamed; if the process is killed, a later one goes on behind the last finished shard. A folder
// whose fingerprint still fits the text, the tokenizer and val_fraction is reused. token_cache.hpp has the folders that
// runs share.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <kozero/data/text_files.hpp>
#include <kozero/distributed/communicator.hpp>

namespace kozero::data {

struct PrepareOrder {
  std::vector<std::string> text = {};  ///< files and folders
  std::string tokenizer = "bytes";
  double val_fraction = 0.05;
  std::string folder = {};
  std::string split = {};  ///< of a tokenizer that is learned: a published split's name (io/text/pretokenizer.hpp)
  /// Instead of `text`: several sources. Each begins a new shard of training and of validation tokens.
  std::vector<TextSource> sources = {};
  bool splits_sources = false;  ///< val_fraction of each source's plain text is for validation, not of all text as one
  std::optional<std::vector<TextFile>> files = {};  ///< instead of those that the paths lead to
  DocumentRules rules = {};                         ///< of `text`
  bool deduplicate = false;                         ///< of equal documents, only the first is tokenized
  int threads = 0;                                  ///< of a rank, that encode; 0: one per core of this process
  /// Its ranks prepare together: each encodes, the first one writes. Null: this process alone.
  distributed::Communicator* comm = nullptr;
  std::int64_t shard_tokens = 100'000'000;  ///< as llm.c's
  /// Called with a line for people: another process makes the same folder, or an entry of the cache is damaged.
  std::function<void(const std::string& line)> say = [](const std::string& /*line*/) {};
  /// Called now and then with the bytes of the corpus's files that are done, and all of them.
  std::function<void(std::int64_t done, std::int64_t all)> progress = {};

  [[nodiscard]] std::vector<TextSource> all_sources() const {
    return sources.empty() ? std::vector{TextSource{text, "data.text", rules}} : sources;
  }
};

struct TokenSplit {
  std::vector<std::string> files;
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;    ///< of text: bits per byte = loss / ln 2 * tokens / bytes
  std::int64_t trained = 0;  ///< tokens of answers, if the documents are conversations
};

struct PreparedTokens {
  TokenSplit train, val;
  std::vector<TokenSplit> train_sources;  ///< the training part of each of several sources; empty for one
  std::vector<TokenSplit> val_sources;    ///< the same of the validation part; empty in older folders
  std::string tokenizer;                  ///< its name
  std::string tokenizer_file;             ///< for make_tokenizer
  std::int64_t vocab = 0;
  std::string chat_template;  ///< that wrote the conversations; "" if the documents are other text
  std::string fingerprint;
  std::string folder;
  std::int64_t byte_order_marks = 0;  ///< files of the text that begin with one
  std::int64_t crlf_line_ends = 0;    ///< of the text
  std::int64_t special_tokens = 0;    ///< written out in the text; their tokens are those of ordinary text
  DocumentCounts counts;
  bool reused = false;   ///< prepare found it already made
  SkippedFiles skipped;  ///< of the folders given; of prepare() alone
};

/// What may surprise about the tokens that prepare() made, one text each: files that were skipped, fewer ids than
/// "bpe:N" asked for, byte-order marks and CR LF in the text.
std::vector<std::string> notes_on(const PrepareOrder& order, const PreparedTokens& made);

/// Says now and then how far PrepareOrder::progress has come.
class ProgressText {
 public:
  /// `quiet`: seconds before the first text. `every`: seconds between texts.
  ProgressText(double quiet, double every) : next_(quiet), every_(every) {}
  /// "34 % of 1.20 GB text, 31.0 MB/s, 20 s left", if the next text is due.
  std::optional<std::string> due(std::int64_t done, std::int64_t all);

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double next_, every_;
};

/// Makes the folder, or finds it made from the same text. One process calls it, or all ranks of order.comm: then it is
/// collective, and errors are seen by all ranks. Throws Error(deck) for val_fraction
/// outside [0, 0.5] or shards without tokens, Error(input) for the text, Error(write) for the folder, which is replaced
/// only where it holds prepared tokens.
PreparedTokens prepare(const PrepareOrder& order);

/// The description of a prepared folder. Throws Error(input) if there is none or it is malformed.
PreparedTokens read_prepared(const std::string& folder);

/// Whether the folder was made from the text of this fingerprint, and its shards are whole.
bool is_current(const std::string& folder, const std::string& fingerprint);

/// Writes the folder from these files, which find_text() found; nothing may be there. Collective over `comm`. Throws as
/// prepare(), seen by all ranks.
void make_tokens(const PrepareOrder& order, const std::vector<TextFile>& files, const std::string& folder,
                 const std::string& fingerprint, distributed::Communicator& comm);

/// Reads the files of which the folder's tokens were made. Throws Error(input) if one has other bytes than then, or is
/// gone. Folders of earlier versions do not say which.
void require_same_sources(const std::string& folder);

/// The description of a folder of prepared tokens, with their fingerprint.
inline constexpr const char* kTokensDescription = "tokens.json";

/// 16 hexadecimal digits that change with the text files' paths, sizes and times, the tokenizer and val_fraction.
std::string fingerprint_of(const PrepareOrder& order, const std::vector<TextFile>& files);

/// Writes folder/tokens.json; file names in it are relative to the folder.
void write_description(const std::string& folder, const PreparedTokens& tokens);

}  // namespace kozero::data
