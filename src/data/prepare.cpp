// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// prepare.cpp: tokenizes a corpus and divides it into training and validation shards.
#include <fmt/format.h>
#include <unistd.h>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include <kozero/core/error.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/data/token_shard.hpp>
#include <kozero/distributed/agreement.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/run_folder.hpp"
#include "io/text/tokenizer.hpp"
#include "src/data/chat_tokens.hpp"
#include "src/data/document_formats.hpp"
#include "src/data/entry_lock.hpp"
#include "src/data/tokenize.hpp"

namespace kozero::data {
namespace {

namespace fs = std::filesystem;

void require_replaceable(const std::string& folder) {
  if (fs::exists(folder) && !fs::is_empty(folder) && !io::is_there((fs::path(folder) / kTokensDescription).string())) {
    throw Error(Failure::write, folder + ": holds files that are not prepared tokens; name another folder");
  }
}

/// Rank 0's work on files, whose failures all ranks throw as Error(write).
void on_first_rank(distributed::Communicator& comm, const std::function<void()>& work) {
  distributed::agreed(comm, [&] {
    try {
      if (comm.rank() == 0) work();
    } catch (const fs::filesystem_error& problem) {
      throw Error(Failure::write, problem.path1().string() + ": " + problem.code().message());
    }
  });
}

/// Throws Error(input) naming a file that was written to after find_text() found it: the tokens are not those of the
/// fingerprint, which has the file's size and time.
void require_unchanged(const std::vector<TextFile>& files) {
  for (const TextFile& file : files) {
    std::error_code gone;
    const auto modified = fs::last_write_time(file.path, gone);
    if (!gone && modified.time_since_epoch().count() == file.modified &&
        static_cast<std::int64_t>(fs::file_size(file.path, gone)) == file.bytes) {
      continue;
    }
    throw Error(Failure::input, file.path +
                                    ": it changed while it was read; nothing of it is kept; start again when "
                                    "it is complete");
  }
}

/// Makes the folder, unless another process made it meanwhile. Collective.
void make_folder(const PrepareOrder& order, const std::vector<TextFile>& files, const std::string& folder,
                 const std::string& fingerprint, distributed::Communicator& comm) {
  std::optional<EntryLock> lock;  // rank 0's
  std::string made;
  on_first_rank(comm, [&] {
    require_replaceable(folder);
    fs::create_directories(fs::absolute(folder).parent_path());
    const std::string partial = io::partial_name(folder);
    lock.emplace(partial + ".lock", folder, order.say);
    if (is_current(folder, fingerprint)) return;
    // Who holds the lock goes on with what the last holder left.
    made = lock->is_held() ? partial : partial + "." + std::to_string(::getpid());
  });
  made = comm.broadcast_control(made);
  if (made.empty()) return;
  try {
    make_tokens(order, files, made, fingerprint, comm);
    on_first_rank(comm, [&] {
      require_replaceable(folder);
      fs::remove_all(folder);
      fs::rename(made, folder);
    });
  } catch (...) {
    std::error_code ignored;
    if (comm.rank() == 0) fs::remove_all(made, ignored);
    throw;
  }
}

}  // namespace

void make_tokens(const PrepareOrder& order, const std::vector<TextFile>& files, const std::string& folder,
                 const std::string& fingerprint, distributed::Communicator& comm) {
  const FileCorpus corpus(files);
  const std::string& chat_template = files.front().rules.chat_template;
  on_first_rank(comm, [&] { fs::create_directories(folder); });
  // Every rank learns the same tokenizer, beside the others.
  const auto tokenizer = distributed::agreed(comm, [&] {
    auto made = io::make_tokenizer(order.tokenizer, &corpus, order.split);
    if (!chat_template.empty()) require_special_tokens(chat_template, *made);
    return made;
  });
  PreparedTokens tokens = tokenize(order, files, *tokenizer, folder, fingerprint, comm);
  on_first_rank(comm, [&] {
    require_unchanged(files);
    tokens.chat_template = chat_template;
    tokens.tokenizer = tokenizer->name();
    tokens.tokenizer_file = (fs::path(folder) / tokenizer->file_name()).string();
    tokens.vocab = tokenizer->vocab_size();
    tokens.fingerprint = fingerprint;
    tokenizer->save(tokens.tokenizer_file);
    if (tokens.train.tokens + tokens.val.tokens == 0) {
      const std::string left_out = listed(tokens.counts);
      throw Error(Failure::input, files.front().key + ": no document" + (left_out.empty() ? "" : "; " + left_out));
    }
    if (!chat_template.empty()) {
      require_answers(tokens.train.trained, tokens.train.tokens, files.front().key + ": training tokens");
      require_answers(tokens.val.trained, tokens.val.tokens, files.front().key + ": validation tokens");
    }
    write_description(folder, tokens);
  });
}

std::vector<std::string> notes_on(const PrepareOrder& order, const PreparedTokens& made) {
  std::vector<std::string> notes;
  if (const auto asked = io::bpe_size(order.tokenizer); asked && *asked > made.vocab) {
    notes.push_back(fmt::format("{}: {} ids were learned, the text has no more pairs", order.tokenizer, made.vocab));
  }
  if (made.byte_order_marks + made.crlf_line_ends > 0) {
    notes.push_back(
        fmt::format("byte-order marks ({}) and CR LF line ends ({}) go into the tokens as they are; dos2unix "
                    "FILE removes both",
                    made.byte_order_marks, made.crlf_line_ends));
  }
  if (made.special_tokens > 0) {
    notes.push_back(fmt::format(
        "special tokens that are written out in the text ({}) are ordinary text and separate nothing; if they are to "
        "separate documents, make JSON lines of these",
        made.special_tokens));
  }
  if (const std::string unnamed = listed_unnamed_json(made.counts); !unnamed.empty()) notes.push_back(unnamed);
  if (const std::string left_out = listed(made.counts); !left_out.empty()) notes.push_back(left_out);
  if (order.val_fraction > 0.0 && made.val.tokens == 0 && made.counts.documents > 0) {
    notes.push_back(fmt::format("no validation text: of {} documents, val_fraction = {} chose none",
                                made.counts.documents, order.val_fraction));
  }
  if (const std::string skipped = listed(made.skipped); !skipped.empty()) notes.push_back(skipped);
  return notes;
}

std::optional<std::string> ProgressText::due(std::int64_t done, std::int64_t all) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (seconds < next_) return std::nullopt;
  next_ = seconds + every_;
  const double rate = static_cast<double>(done) / seconds;
  return fmt::format("{:.0f} % of {:.2f} GB text, {:.1f} MB/s, {} left",
                     100.0 * static_cast<double>(done) / static_cast<double>(all), static_cast<double>(all) / 1e9,
                     rate / 1e6, io::readable_seconds(static_cast<double>(all - done) / rate));
}

PreparedTokens prepare(const PrepareOrder& order) {
  if (!(order.val_fraction >= 0.0 && order.val_fraction <= 0.5)) {
    throw Error(Failure::deck,
                "data.val_fraction = " + std::to_string(order.val_fraction) + ": accepted: number 0 to 0.5");
  }
  constexpr std::int64_t kMostShardTokens = INT32_MAX;
  constexpr int kMostThreads = 4096;  // each has a stack and tables of its own
  if (order.shard_tokens < 1 || order.shard_tokens > kMostShardTokens || order.threads < 0 ||
      order.threads > kMostThreads) {
    throw Error(Failure::deck, fmt::format("--shard-tokens {} --threads {}: accepted: 1 to {} tokens, 1 to {} threads",
                                           order.shard_tokens, order.threads, kMostShardTokens, kMostThreads));
  }
  const auto alone = distributed::make_self_communicator();
  distributed::Communicator& comm = order.comm == nullptr ? *alone : *order.comm;
  SkippedFiles skipped;
  std::vector<TextFile> files;
  const std::string fingerprint = distributed::agreed(comm, [&] {
    files = find_text(order.all_sources(), skipped);
    return fingerprint_of(order, files);
  });
  for (const auto& other : distributed::gather_text(comm, fingerprint)) {
    if (other == fingerprint) continue;
    throw Error(Failure::input,
                files.front().key +
                    ": the ranks find different files, or other times of them; give a "
                    "folder that all ranks share",
                Error::Seen::by_all_ranks);
  }
  const std::string folder = io::without_trailing_slash(order.folder);
  const bool current =
      distributed::from_first_rank(comm, [&] { return is_current(folder, fingerprint) ? "current" : ""; }) != "";
  if (!current) make_folder(order, files, folder, fingerprint, comm);
  auto tokens = distributed::agreed(comm, [&] { return read_prepared(folder); });
  tokens.reused = current;
  tokens.skipped = std::move(skipped);
  return tokens;
}

}  // namespace kozero::data
