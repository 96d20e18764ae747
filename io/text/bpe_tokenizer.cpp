// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_tokenizer.cpp: the search for added tokens, encoding, decoding and training of byte-level BPE.
#include <algorithm>
#include <unordered_map>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/text/bpe_merges.hpp"
#include "io/text/bpe_tokenizer.hpp"
#include "io/text/pretokenizer.hpp"
#include "io/text/tokenizer_json.hpp"

namespace kozero::io {
namespace {

unsigned char byte_at(std::string_view text, std::size_t index) { return static_cast<unsigned char>(text[index]); }

/// Appends the ids of the added tokens in the text and calls rest() with each part of the text between them.
template <class Rest>
void between(const AddedTokens& added, std::string_view text, std::vector<Token>& tokens, const Rest& rest) {
  for (std::size_t start = 0; start < text.size();) {
    const auto match = added.find(text, start);
    if (match.begin > start) rest(text.substr(start, match.begin - start));
    if (match.id >= 0) tokens.push_back(match.id);
    start = match.end;
  }
}

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 18;
constexpr std::int64_t kSampleBytes = std::int64_t{64} << 20;
constexpr std::size_t kMaxPretokens = std::size_t{1} << 20;
constexpr std::size_t kMaxPretokenBytes = 64;  // longer pretokens (rows of a table, base64) are not words

/// Drops the rarest pretokens until at most half of kMaxPretokens are left.
void prune(PretokenCounts& counts) {
  for (std::int64_t rarest = 1; counts.size() > kMaxPretokens / 2; rarest *= 2) {
    std::erase_if(counts, [&](const auto& entry) { return entry.second <= rarest; });
  }
}

PretokenCounts count_pretokens(const Corpus& corpus, const PublishedSplit& split) {
  const SplitPattern pattern(split.expression);
  const std::int64_t every = std::max<std::int64_t>(1, (corpus.bytes() + kSampleBytes - 1) / kSampleBytes);
  std::unordered_map<std::string, std::int64_t> tally;
  PretokenCounts counts;
  const auto drain = [&] {
    for (const auto& [pretoken, count] : tally) counts[pretoken] += count;
    tally.clear();
    if (counts.size() > kMaxPretokens) prune(counts);
  };
  const auto reader = corpus.read(kBlockBytes);
  std::int64_t number = 0;
  for (TextBlock block; reader->next(block); ++number) {
    if (number % every != 0) continue;
    if (split.nfc) block.text = to_nfc(block.text);
    PretokenSplitter splitter(pattern, block.text);
    for (std::string_view pretoken; splitter.next(pretoken);) {
      if (pretoken.size() > 1 && pretoken.size() <= kMaxPretokenBytes) ++tally[std::string(pretoken)];
    }
    if (tally.size() > kMaxPretokens) drain();
  }
  drain();
  return counts;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<std::pair<std::string, Token>> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end());
  for (const auto& [text, id] : tokens_) {
    require(!text.empty(), "AddedTokens: an empty text");
    begins_[byte_at(text, 0)] = true;
  }
}

AddedTokens::Match AddedTokens::longest_at(std::string_view text, std::size_t begin) const {
  Match best{begin, begin, -1};
  auto low = tokens_.begin(), high = tokens_.end();  // the tokens that match the text so far
  for (std::size_t length = 0; low != high; ++length) {
    if (low->first.size() == length) {
      best = {begin, begin + length, low->second};
      if (++low == high) break;
    }
    if (begin + length == text.size()) break;
    const unsigned char byte = byte_at(text, begin + length);
    low = std::partition_point(low, high, [&](const auto& token) { return byte_at(token.first, length) < byte; });
    high = std::partition_point(low, high, [&](const auto& token) { return byte_at(token.first, length) == byte; });
  }
  return best;
}

AddedTokens::Match AddedTokens::find(std::string_view text, std::size_t start) const {
  if (!tokens_.empty()) {
    for (std::size_t begin = start; begin < text.size(); ++begin) {
      if (!begins_[byte_at(text, begin)]) continue;
      if (const Match match = longest_at(text, begin); match.id >= 0) return match;
    }
  }
  return {text.size(), text.size(), -1};
}

BpeTokenizer::BpeTokenizer(const std::string& path, std::string json_text)
    : BpeTokenizer(json_text, read_tokenizer_json(path, json_text)) {}

BpeTokenizer::BpeTokenizer(const std::vector<Merge>& merges, const PublishedSplit& split)
    : BpeTokenizer("learned tokenizer", tokenizer_json_of(merges, split)) {}

BpeTokenizer::BpeTokenizer(std::string json_text, TokenizerJson json)
    : json_text_(std::move(json_text)),
      added_(std::move(json.added)),
      added_normalized_(std::move(json.added_normalized)),
      pattern_(json.split),
      rules_(json.bytes, json.merges),
      bytes_of_(std::move(json.bytes_of)),
      nfc_(json.nfc),
      add_prefix_space_(json.add_prefix_space),
      end_of_text_(json.end_of_text),
      closing_(std::move(json.closing)) {
  for (const Token id : json.whole) whole_.emplace(bytes_of_[static_cast<std::size_t>(id)], id);
}

std::vector<Token> BpeTokenizer::encode(std::string_view text) const { return encode_text(text, add_prefix_space_); }

std::vector<Token> BpeTokenizer::encode_rest(std::string_view text) const { return encode_text(text, false); }

std::vector<Token> BpeTokenizer::encode_text(std::string_view text, bool add_prefix_space) const {
  std::vector<Token> tokens;
  tokens.reserve(text.size() / 3);
  between(added_, text, tokens, [&](std::string_view rest) {
    // encode_rest omits the prefix space only at the front of the text: after an added token a new text begins.
    encode_unnormalized(rest, rest.data() == text.data() ? add_prefix_space : add_prefix_space_, tokens);
  });
  return tokens;
}

void BpeTokenizer::encode_unnormalized(std::string_view text, bool add_prefix_space, std::vector<Token>& tokens) const {
  const std::string composed = nfc_ ? to_nfc(text) : std::string();
  const std::string_view normal = nfc_ ? std::string_view(composed) : text;
  between(added_normalized_, normal, tokens, [&](std::string_view rest) {
    encode_plain(rest, rest.data() == normal.data() ? add_prefix_space : add_prefix_space_, tokens);
  });
}

void BpeTokenizer::encode_plain(std::string_view text, bool add_prefix_space, std::vector<Token>& tokens) const {
  if (!add_prefix_space || text.starts_with(' ')) return encode_pretokens(text, tokens);
  encode_pretokens(" " + std::string(text), tokens);
}

void BpeTokenizer::encode_pretokens(std::string_view text, std::vector<Token>& tokens) const {
  PretokenSplitter splitter(pattern_, text);
  for (std::string_view pretoken; splitter.next(pretoken);) {
    if (cache_.find(pretoken, tokens)) continue;
    const std::size_t first = tokens.size();
    if (const auto whole = whole_.find(pretoken); whole != whole_.end()) {
      tokens.push_back(whole->second);
    } else {
      rules_.apply(pretoken, tokens);
    }
    cache_.keep(pretoken, std::span(tokens).subspan(first));
  }
}

std::string BpeTokenizer::decode(std::span<const Token> tokens) const {
  std::string text;
  for (const Token token : tokens) {
    if (token < 0 || token >= vocab_size()) {
      throw Error(Failure::input, "tokenizer " + name() + ": id " + std::to_string(token) + " is outside [0, " +
                                      std::to_string(vocab_size()) + ")");
    }
    text += bytes_of_[static_cast<std::size_t>(token)];
  }
  return text;
}

bool BpeTokenizer::ends_text(Token token) const {
  return std::find(closing_.begin(), closing_.end(), token) != closing_.end();
}

void BpeTokenizer::save(const std::string& path) const { write_whole_file(path, json_text_); }

BpeTokenizer train_bpe(const Corpus& corpus, int vocab, const PublishedSplit& split) {
  return BpeTokenizer(learn_merges(count_pretokens(corpus, split), vocab - 257), split);
}

}  // namespace kozero::io
