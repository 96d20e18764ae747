// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_tokenizer.cpp: the search for added tokens, encoding, decoding and training of byte-level BPE.
#include <algorithm>
#include <unordered_map>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/text/bpe_merges.hpp"
#include "io/text/bpe_tokenizer.hpp"
#include "io/text/pretoken_cache.hpp"
#include "io/text/pretoken_counts.hpp"
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

using Added = std::vector<std::pair<std::string, Token>>;

/// Whether the token controls the model: marked so, or one that begins or ends a text.
bool is_special(const TokenizerJson& json, Token token) {
  return token == json.end_of_text || std::ranges::find(json.special, token) != json.special.end() ||
         std::ranges::find(json.closing, token) != json.closing.end();
}

/// The added tokens that are special, or those that are not.
Added those(bool special, const TokenizerJson& json, Added added) {
  std::erase_if(added, [&](const auto& token) { return is_special(json, token.second) != special; });
  return added;
}

Added joined(Added first, const Added& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 18;
constexpr std::int64_t kSampleBytes = std::int64_t{64} << 20;
constexpr std::size_t kMaxPretokens = std::size_t{1} << 20;
constexpr std::size_t kMaxPretokenBytes = 64;  // longer pretokens (rows of a table, base64) are not words

/// Counts in parts: if a part has too many different pretokens, the rarest of all of them are dropped.
PretokenCounts count_pretokens(const Corpus& corpus, const PublishedSplit& split) {
  const SplitPattern pattern(split.expression);
  PretokenSplitter splitter(pattern);
  const std::int64_t every = std::max<std::int64_t>(1, (corpus.bytes() + kSampleBytes - 1) / kSampleBytes);
  PretokenCounts counts, part;
  const auto add_part = [&] {
    if (counts.size() == 0) std::swap(counts, part);
    for (const auto& [pretoken, count] : part.all()) counts.add(pretoken, count);
    part = PretokenCounts();
    if (counts.size() > kMaxPretokens) counts.drop_rarest(kMaxPretokens / 2);
  };
  const auto reader = corpus.read(kBlockBytes);
  std::int64_t number = 0;
  for (TextBlock block; reader->next(block); ++number) {
    if (number % every != 0) continue;
    if (split.nfc) block.text = to_nfc(block.text);
    splitter.start(block.text);
    for (auto some = splitter.next(); !some.empty(); some = splitter.next()) {
      part.add_all(some, kMaxPretokenBytes);
    }
    if (part.size() > kMaxPretokens) add_part();
  }
  add_part();
  return counts;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<std::pair<std::string, Token>> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end());
  for (const auto& [text, id] : tokens_) {
    require(!text.empty(), "AddedTokens: an empty text");
    begins_[byte_at(text, 0)] = true;
  }
  same_begin_ = std::count(begins_.begin(), begins_.end(), true) == 1;
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
      if (same_begin_) begin = std::min(text.find(tokens_.front().first[0], begin), text.size() - 1);
      if (!begins_[byte_at(text, begin)]) continue;
      if (const Match match = longest_at(text, begin); match.id >= 0) return match;
    }
  }
  return {text.size(), text.size(), -1};
}

Token AddedTokens::id_of(std::string_view text) const {
  const auto found =
      std::ranges::lower_bound(tokens_, text, {}, [](const auto& token) { return std::string_view(token.first); });
  return found != tokens_.end() && found->first == text ? found->second : -1;
}

BpeTokenizer::BpeTokenizer(const std::string& path, std::string json_text)
    : BpeTokenizer(json_text, read_tokenizer_json(path, json_text)) {}

BpeTokenizer::BpeTokenizer(const std::vector<Merge>& merges, const PublishedSplit& split)
    : BpeTokenizer("learned tokenizer", tokenizer_json_of(merges, split)) {}

BpeTokenizer::BpeTokenizer(std::string json_text, TokenizerJson json)
    : json_text_(std::move(json_text)),
      added_{AddedTokens(json.added), AddedTokens(json.added_normalized)},
      ordinary_{AddedTokens(those(false, json, json.added)), AddedTokens(those(false, json, json.added_normalized))},
      special_(those(true, json, joined(json.added, json.added_normalized))),
      pattern_(json.split),
      rules_(json.bytes, json.merges),
      bytes_of_(std::move(json.bytes_of)),
      nfc_(json.nfc),
      add_prefix_space_(json.add_prefix_space),
      end_of_text_(json.end_of_text),
      closing_(std::move(json.closing)) {
  for (const Token id : json.whole) whole_.emplace(bytes_of_[static_cast<std::size_t>(id)], id);
}

/// The tokenizer's tables are shared; splitter, cache and buffers are the encoder's own.
class BpeTokenizer::BpeEncoder : public Encoder {
 public:
  explicit BpeEncoder(const BpeTokenizer& tokenizer) : its_(tokenizer), splitter_(tokenizer.pattern_) {}

  void encode(std::string_view text, std::vector<Token>& out) override {
    encode_text(text, its_.added_, its_.add_prefix_space_, out);
  }
  void encode_rest(std::string_view text, std::vector<Token>& out) override {
    encode_text(text, its_.ordinary_, false, out);
  }
  void encode_ordinary(std::string_view text, std::vector<Token>& out) override {
    encode_text(text, its_.ordinary_, its_.add_prefix_space_, out);
  }

 private:
  static constexpr std::size_t kGroup = 64;

  void encode_text(std::string_view text, const AddedSets& added, bool add_prefix_space, std::vector<Token>& out) {
    between(added.given, text, out, [&](std::string_view rest) {
      // encode_rest omits the prefix space only at the front of the text: after an added token a new text begins.
      encode_unnormalized(rest, added, rest.data() == text.data() ? add_prefix_space : its_.add_prefix_space_, out);
    });
  }

  void encode_unnormalized(std::string_view text, const AddedSets& added, bool add_prefix_space,
                           std::vector<Token>& out) {
    const std::string composed = its_.nfc_ ? to_nfc(text) : std::string();
    const std::string_view normal = its_.nfc_ ? std::string_view(composed) : text;
    between(added.normalized, normal, out, [&](std::string_view rest) {
      encode_plain(rest, rest.data() == normal.data() ? add_prefix_space : its_.add_prefix_space_, out);
    });
  }

  void encode_plain(std::string_view text, bool add_prefix_space, std::vector<Token>& out) {
    if (!add_prefix_space || text.starts_with(' ')) return encode_pretokens(text, out);
    encode_pretokens(" " + std::string(text), out);
  }

  void encode_pretokens(std::string_view text, std::vector<Token>& out) {
    const char* const end = text.data() + text.size();
    splitter_.start(text);
    for (auto some = splitter_.next(); !some.empty(); some = splitter_.next()) {
      find_places(some.first(std::min(kGroup, some.size())), end, places_[0]);
      for (std::size_t first = 0, group = 0; first < some.size(); first += kGroup, group = 1 - group) {
        const auto rest = some.subspan(first);
        const auto here = rest.first(std::min(kGroup, rest.size()));
        const auto next = rest.subspan(here.size());
        find_places(next.first(std::min(kGroup, next.size())), end, places_[1 - group]);
        encode_group(here, places_[group], out);
      }
    }
  }

  using Places = std::array<PretokenCache::Place, kGroup>;

  /// Of at most kGroup pretokens in a text that ends at `end`.
  void find_places(std::span<const std::string_view> pretokens, const char* end, Places& places) const {
    for (std::size_t i = 0; i < pretokens.size(); ++i) {
      places[i] = cache_.place_of(pretokens[i], end - pretokens[i].data() >= 16);
    }
  }

  void encode_group(std::span<const std::string_view> pretokens, const Places& places, std::vector<Token>& out) {
    std::array<Token, kGroup * PretokenCache::kMaxTokens> tokens;  // appended to the caller's together
    Token* next = tokens.data();
    for (std::size_t i = 0; i < pretokens.size(); ++i) {
      const std::size_t known = cache_.find(pretokens[i], places[i], next);
      next += known;
      if (known != 0) continue;
      out.insert(out.end(), tokens.data(), next);
      next = tokens.data();
      encode_unknown(pretokens[i], out);
    }
    out.insert(out.end(), tokens.data(), next);
  }

  void encode_unknown(std::string_view pretoken, std::vector<Token>& out) {
    const std::size_t first = out.size();
    if (const auto whole = its_.whole_.find(pretoken); whole != its_.whole_.end()) {
      out.push_back(whole->second);
    } else {
      its_.rules_.apply(pretoken, out);
    }
    cache_.keep(pretoken, std::span(out).subspan(first));
  }

  const BpeTokenizer& its_;
  PretokenSplitter splitter_;
  PretokenCache cache_;
  std::array<Places, 2> places_;  ///< of this group and the next, which loads meanwhile
};

std::unique_ptr<Encoder> BpeTokenizer::encoder() const { return std::make_unique<BpeEncoder>(*this); }

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

Token BpeTokenizer::added_token(std::string_view text) const {
  const Token given = added_.given.id_of(text);
  return given >= 0 ? given : added_.normalized.id_of(text);
}

std::int64_t BpeTokenizer::count_special(std::string_view text) const {
  std::int64_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) {
    const AddedTokens::Match match = special_.find(text, at);
    if (match.id < 0) break;
    at = match.end;
  }
  return count;
}

bool BpeTokenizer::ends_text(Token token) const {
  return std::find(closing_.begin(), closing_.end(), token) != closing_.end();
}

void BpeTokenizer::save(const std::string& path) const { write_whole_file(path, json_text_); }

std::unique_ptr<BpeTokenizer> train_bpe(const Corpus& corpus, int vocab, const PublishedSplit& split) {
  const PretokenCounts counts = count_pretokens(corpus, split);
  return std::make_unique<BpeTokenizer>(learn_merges(counts.all(), vocab - 257), split);
}

}  // namespace kozero::io
