// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tokenize.cpp: which side a block is on, threads that encode, and the record of finished shards.
#include "src/data/tokenize.hpp"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/distributed/agreement.hpp>
#include "io/posix/file.hpp"
#include "src/data/chat_tokens.hpp"
#include "src/data/document_formats.hpp"
#include "src/data/source_hashes.hpp"
#include "src/data/split_writer.hpp"

namespace kozero::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kStretchBytes = std::int64_t{64} << 10;
constexpr std::int64_t kMinBlockBytes = 256;
constexpr std::int64_t kMinBatchBytes = std::int64_t{16} << 10;
constexpr std::int64_t kMaxBatchBytes = std::int64_t{4} << 20;

/// Which bytes of plain text are for validation.
class Stretches {
 public:
  Stretches(std::int64_t total, double fraction) : total_(total), fraction_(fraction) {
    parts_ = std::max(1.0, std::floor(static_cast<double>(total) * fraction / static_cast<double>(kStretchBytes)));
  }
  [[nodiscard]] bool is_validation(std::int64_t offset) const {
    const double part = static_cast<double>(offset) / static_cast<double>(total_) * parts_;
    return part - std::floor(part) >= 1.0 - fraction_;
  }
  /// Blocks small enough that sides, which change between blocks, have the sizes asked for within a few percent.
  [[nodiscard]] std::int64_t block_bytes() const {
    const auto stretch = static_cast<std::int64_t>(static_cast<double>(total_) * fraction_ / parts_);
    return fraction_ == 0.0 ? kStretchBytes : std::clamp(stretch / 16, kMinBlockBytes, kStretchBytes);
  }

 private:
  std::int64_t total_;
  double fraction_, parts_;
};

/// Which bytes of plain text are for validation, of the whole corpus or of each source.
class Sides {
 public:
  Sides(const PrepareOrder& order, const std::vector<TextFile>& files, std::int64_t total)
      : by_source_(order.splits_sources) {
    for (const auto& file : files) {
      const std::size_t part = by_source_ ? file.source : 0;
      const std::int64_t begin = parts_.empty() ? 0 : parts_.back().end;
      while (parts_.size() <= part) parts_.push_back({begin, begin});
      parts_.back().end += file.bytes;
    }
    if (!by_source_) parts_.back().end = total;
    for (const auto& part : parts_) stretches_.emplace_back(part.end - part.begin, order.val_fraction);
  }
  [[nodiscard]] bool is_validation(const TextFile& file, std::int64_t offset) const {
    const std::size_t part = by_source_ ? file.source : 0;
    return stretches_[part].is_validation(offset - parts_[part].begin);
  }
  [[nodiscard]] std::int64_t block_bytes() const {
    std::int64_t least = stretches_.front().block_bytes();
    for (const auto& each : stretches_) least = std::min(least, each.block_bytes());
    return least;
  }

 private:
  struct Part {
    std::int64_t begin, end;  ///< bytes of the corpus
  };
  bool by_source_;
  std::vector<Part> parts_;
  std::vector<Stretches> stretches_;
};

/// Whether a document is for validation: by its hash, which is uniform over [0, 2^64).
bool is_chosen(std::uint64_t hash, double val_fraction) {
  return static_cast<double>(hash >> 11U) * 0x1p-53 < val_fraction;
}

/// A block, its side and its tokens.
struct Piece {
  io::TextBlock block;
  std::int64_t number = 0;
  bool is_validation = false;
  bool begins = false;     ///< with the separator: a document, or the side changes
  bool is_needed = false;  ///< not in a finished shard
  bool is_mine = false;    ///< encoded by this rank, if it is needed
  std::vector<Token> tokens;
  std::vector<TokenRange> answers;  ///< in the tokens of a conversation
};

/// Threads that encode a batch of pieces, each with an encoder of its own.
class BatchEncoder {
 public:
  BatchEncoder(const io::Tokenizer& tokenizer, int threads)
      : tokenizer_(tokenizer), separator_(tokenizer.end_of_text()) {
    for (int i = 0; i < threads; ++i) encoders_.push_back(tokenizer.encoder());
  }
  ~BatchEncoder() { join(); }
  BatchEncoder(const BatchEncoder&) = delete;
  BatchEncoder& operator=(const BatchEncoder&) = delete;

  /// Other threads begin with the pieces, which stay in place until finish().
  void start(std::vector<Piece>& pieces) {
    pieces_ = &pieces;
    next_ = 0;
    for (std::size_t i = 1; i < encoders_.size(); ++i) {
      threads_.emplace_back([this, i] {
        run_on_any_cpu();
        encode(*encoders_[i]);
      });
    }
  }
  /// This thread encodes too, until all pieces have their tokens. Throws what an encoder threw.
  void finish() {
    encode(*encoders_[0]);
    join();
    if (problem_) std::rethrow_exception(problem_);
  }

 private:
  void join() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  void encode(io::Encoder& encoder) {
    try {
      for (std::size_t i = next_++; i < pieces_->size(); i = next_++) {
        Piece& piece = (*pieces_)[i];
        if (!piece.is_needed || !piece.is_mine) continue;
        if (piece.begins && separator_ >= 0) piece.tokens.push_back(separator_);
        if (!piece.block.parts.empty()) {
          encode_conversation(piece.block, tokenizer_, encoder, piece.tokens, piece.answers);
        } else if (piece.block.starts_document) {
          encoder.encode_ordinary(piece.block.text, piece.tokens);
        } else {
          encoder.encode_rest(piece.block.text, piece.tokens);
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      problem_ = std::current_exception();
      next_ = pieces_->size();
    }
  }

  const io::Tokenizer& tokenizer_;
  Token separator_;
  std::vector<std::unique_ptr<io::Encoder>> encoders_;
  std::vector<std::thread> threads_;
  std::vector<Piece>* pieces_ = nullptr;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr problem_;
};

template <class T>
void append_bytes(std::string& bytes, const std::vector<T>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  bytes.append(reinterpret_cast<const char*>(&count), sizeof(count));
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

/// Takes what append_bytes() appended from the front.
template <class T>
void take_bytes(std::string_view& bytes, std::vector<T>& values) {
  std::int64_t count = 0;
  std::memcpy(&count, bytes.data(), sizeof(count));
  bytes.remove_prefix(sizeof(count));
  values.resize(static_cast<std::size_t>(count));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  bytes.remove_prefix(values.size() * sizeof(T));
}

/// Gives every rank the tokens of the pieces that others encoded.
void gather_tokens(std::vector<Piece>& pieces, distributed::Communicator& comm) {
  if (comm.size() == 1) return;
  std::string mine;
  for (const auto& piece : pieces) {
    if (!piece.is_needed || !piece.is_mine) continue;
    append_bytes(mine, piece.tokens);
    append_bytes(mine, piece.answers);
  }
  const auto texts = distributed::gather_text(comm, mine);
  std::vector<std::string_view> left(texts.begin(), texts.end());
  for (auto& piece : pieces) {
    if (!piece.is_needed) continue;
    std::string_view& bytes = left[static_cast<std::size_t>(piece.number % comm.size())];
    take_bytes(bytes, piece.tokens);
    take_bytes(bytes, piece.answers);
  }
}

std::vector<ShardEnd> ends_from(const Json& json) {
  std::vector<ShardEnd> ends;
  for (const auto& end : json) ends.push_back({end.at(0).get<std::int64_t>(), end.at(1).get<std::int64_t>()});
  return ends;
}

Json json_of(const std::vector<ShardEnd>& ends) {
  Json json = Json::array();
  for (const auto& end : ends) json.push_back({end.block, end.tokens});
  return json;
}

struct Finished {
  std::vector<ShardEnd> train, val;
};

/// The shards that a killed process has finished; none if it tokenized something else.
Finished finished_shards(const std::string& folder, const std::string& fingerprint) {
  constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;
  const std::string path = (fs::path(folder) / kTokenizeProgress).string();
  try {
    if (!io::is_there(path)) return {};
    const Json json = Json::parse(io::read_whole_file(path, kMostBytes));
    if (json.at("fingerprint") != fingerprint) return {};
    return {ends_from(json.at("train")), ends_from(json.at("val"))};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

/// Removes all but the finished shards, and what goes with each.
void keep_finished(const std::string& folder, const Finished& finished) {
  std::set<std::string> kept;
  for (const auto& [side, ends] : {std::pair("train", finished.train), std::pair("val", finished.val)}) {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const std::string name = fs::path(SplitWriter::path_of(folder, side, i)).filename().string();
      kept.insert({name, name + ".xxh3", name + ".documents", name + ".answers"});
    }
  }
  std::vector<fs::path> others;
  for (const auto& each : fs::directory_iterator(folder)) {
    if (!kept.contains(each.path().filename().string())) others.push_back(each.path());
  }
  for (const auto& path : others) fs::remove_all(path);
}

/// One pass over a corpus.
class Pass {
 public:
  Pass(const PrepareOrder& order, const std::vector<TextFile>& files, const io::Tokenizer& tokenizer,
       const std::string& folder, const std::string& fingerprint, const Finished& finished,
       distributed::Communicator& comm)
      : comm_(comm),
        tokenizer_(tokenizer),
        order_(order),
        files_(files),
        folder_(folder),
        fingerprint_(fingerprint),
        corpus_(files),
        sides_(order, files, corpus_.bytes()),
        is_chat_(!files.front().rules.chat_template.empty()),
        train_(folder, "train", tokenizer.vocab_size(), order.shard_tokens, finished.train, is_chat_),
        val_(folder, "val", tokenizer.vocab_size(), order.shard_tokens, finished.val, is_chat_),
        encoder_(tokenizer, order.threads > 0 ? order.threads : static_cast<int>(cores_of(allowed_cpus()).size())) {
    documents_.deduplicate = order.deduplicate;
    const Token end = tokenizer.end_of_text();
    documents_.refuses_nul = end >= 0 && tokenizer.decode(std::vector{end}) == std::string(1, '\0');
    reader_ = corpus_.read(sides_.block_bytes(), &documents_);
    if (comm.rank() == 0) sources_.emplace(files_, order.folder, order.say);
  }

  PreparedTokens run() {
    distributed::agreed(comm_, [&] { read(now_); });
    for (; !now_.empty(); now_.swap(then_)) {
      distributed::agreed(comm_, [&] {
        encoder_.start(now_);
        read(then_);
        encoder_.finish();
      });
      gather_tokens(now_, comm_);
      distributed::agreed(comm_, [&] {
        if (comm_.rank() == 0) write(now_);
      });
    }
    return distributed::agreed(comm_, [&] { return comm_.rank() == 0 ? finish() : PreparedTokens(); });
  }

 private:
  PreparedTokens finish() {
    begin_sources(files_.back().source, next_number_);
    PreparedTokens made;
    made.train = train_.finish();
    made.val = val_.finish();
    if (!order_.sources.empty()) {
      made.train_sources = train_.finished_sources();
      made.val_sources = val_.finished_sources();
    }
    sources_->finish(folder_);
    made.counts = documents_.counts;
    made.byte_order_marks = byte_order_marks_;
    made.crlf_line_ends = crlf_line_ends_;
    made.special_tokens = special_tokens_;
    return made;
  }

  void read(std::vector<Piece>& pieces) {
    pieces.clear();
    const std::int64_t most = comm_.size() * std::clamp(order_.shard_tokens, kMinBatchBytes, kMaxBatchBytes);
    for (std::int64_t bytes = 0; bytes < most;) {
      Piece piece;
      if (!reader_->next(piece.block)) return;
      const io::TextBlock& block = piece.block;
      if (sources_) sources_->advance(block.offset);
      piece.is_validation = block.document ? is_chosen(*block.document, order_.val_fraction)
                                           : sides_.is_validation(files_[block.file], block.offset);
      piece.begins = block.starts_document || piece.is_validation != was_validation_;
      piece.number = next_number_++;
      piece.is_needed = !(piece.is_validation ? val_ : train_).has(piece.number);
      piece.is_mine = piece.number % comm_.size() == comm_.rank();
      was_validation_ = piece.is_validation;
      bytes += std::ssize(block.text);
      count_marks(block);
      pieces.push_back(std::move(piece));
    }
  }

  void write(const std::vector<Piece>& pieces) {
    const std::size_t before = train_.ends().size() + val_.ends().size();
    for (const auto& piece : pieces) {
      begin_sources(files_[piece.block.file].source, piece.number);
      SplitWriter& side = piece.is_validation ? val_ : train_;
      side.count_bytes(piece.block.text.size());
      if (piece.is_needed) side.append(piece.number, piece.tokens, piece.begins, piece.answers);
    }
    if (train_.ends().size() + val_.ends().size() > before) {
      const Json json = {
          {"fingerprint", fingerprint_}, {"train", json_of(train_.ends())}, {"val", json_of(val_.ends())}};
      io::write_whole_file((fs::path(folder_) / kTokenizeProgress).string(), json.dump() + "\n");
    }
    if (order_.progress) order_.progress(pieces.back().block.offset, corpus_.bytes());
  }

  /// The blocks from this one on are of source `last`.
  void begin_sources(std::size_t last, std::int64_t block) {
    for (; source_ < last; ++source_) {
      train_.begin_source(block);
      val_.begin_source(block);
    }
  }

  void count_marks(const io::TextBlock& block) {
    if (block.starts_document && block.text.starts_with("\xEF\xBB\xBF")) ++byte_order_marks_;
    for (std::size_t at = 0; (at = block.text.find("\r\n", at)) != std::string::npos; at += 2) ++crlf_line_ends_;
    if (block.parts.empty()) special_tokens_ += tokenizer_.count_special(block.text);
    std::size_t begin = 0;
    for (const auto& part : block.parts) {
      const std::size_t end = part.end;
      if (!part.is_special) {
        special_tokens_ += tokenizer_.count_special(std::string_view(block.text).substr(begin, end - begin));
      }
      begin = end;
    }
  }

  distributed::Communicator& comm_;
  const io::Tokenizer& tokenizer_;
  const PrepareOrder& order_;
  const std::vector<TextFile>& files_;
  std::string folder_, fingerprint_;
  FileCorpus corpus_;
  Sides sides_;
  bool is_chat_;  ///< the documents are conversations
  SplitWriter train_, val_;
  std::vector<Piece> now_, then_;  // batches; they outlive the encoder's threads, which write into them
  BatchEncoder encoder_;
  CorpusPass documents_;
  std::unique_ptr<io::DocumentReader> reader_;
  std::optional<SourceHashing> sources_;  // rank 0's
  std::size_t source_ = 0;
  std::int64_t next_number_ = 0;
  std::optional<bool> was_validation_;
  std::int64_t byte_order_marks_ = 0;  ///< files of the text that begin with one
  std::int64_t crlf_line_ends_ = 0;    ///< of the text
  std::int64_t special_tokens_ = 0;    ///< written out in the text
};

}  // namespace

PreparedTokens tokenize(const PrepareOrder& order, const std::vector<TextFile>& files, const io::Tokenizer& tokenizer,
                        const std::string& folder, const std::string& fingerprint, distributed::Communicator& comm) {
  const std::string text = distributed::from_first_rank(comm, [&] {
    const Finished finished = finished_shards(folder, fingerprint);
    keep_finished(folder, finished);
    return Json{{"train", json_of(finished.train)}, {"val", json_of(finished.val)}}.dump();
  });
  const Json json = Json::parse(text);
  const Finished finished{ends_from(json.at("train")), ends_from(json.at("val"))};
  PreparedTokens made = Pass(order, files, tokenizer, folder, fingerprint, finished, comm).run();
  distributed::agreed(comm, [&] {
    if (comm.rank() == 0) fs::remove(fs::path(folder) / kTokenizeProgress);
  });
  return made;
}

}  // namespace kozero::data
