// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// generator.hpp: continues token sequences with a model, one at a time or several at once with a cache.
// sampling.hpp picks each token. The model sees only the last T tokens. Generator runs the whole window for every
// token: the reference for CachedGenerator, which caches keys and values.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/train/engine.hpp>
#include <kozero/train/sampling.hpp>

namespace kozero::train {

/// Continues one token sequence, one token at a time, without a cache. The i-th random number is Philox of (seed, i),
/// so the text does not depend on the number of ranks.
class Generator {
 public:
  /// Takes a context of T tokens and one row of logits. `vocab`: tokens that may be picked (a padded model has more).
  Generator(Evaluator& evaluator, std::int64_t vocab, MemoryLedger& ledger);

  /// `count` tokens that follow `prompt` (at least one token). Collective: every rank gets the same tokens.
  std::vector<Token> continued(const std::vector<Token>& prompt, std::int64_t count, const Sampling& sampling);

 private:
  [[nodiscard]] std::span<float> logits_after(const std::vector<Token>& tokens);

  Evaluator& evaluator_;
  std::int64_t vocab_;
  Matrix<Token> context_;  // (1, T)
  Vector<float> logits_;   // (V)
  std::vector<Token> host_context_;
  std::vector<float> host_logits_;
};

/// A request for continuations. Each prompt has at least one token.
struct GenerationOrder {
  std::vector<std::vector<Token>> prompts;
  std::int64_t samples = 1;  ///< continuations of each prompt: sequence p * samples + s is sample s of prompt p
  std::int64_t count = 0;    ///< most new tokens of a sequence
  Sampling sampling;
  std::function<bool(Token)> ends = {};  ///< whether a token ends its sequence; empty: no token does
  std::int64_t first_prompt = 0;         ///< number of the first prompt, which names its random numbers
  /// A prompt that begins as the slot's sequence before it did reuses the cached tokens that both have: the next turn
  /// of a conversation. Its text may then depend on how these tokens were computed, by their last bits.
  bool reuses_cache = false;
  /// Only this rank generates. It must have all weights: no collective is called.
  bool alone = false;

  [[nodiscard]] std::int64_t num_sequences() const { return static_cast<std::int64_t>(prompts.size()) * samples; }
  /// Tokens of the longest sequence, new tokens included.
  [[nodiscard]] std::int64_t longest() const;
};

/// Receives new tokens, on every rank. The token that ends a sequence is not passed to on_token.
class TokenListener {
 public:
  virtual ~TokenListener() = default;
  virtual void on_token(std::int64_t sequence, Token token) = 0;
  virtual void on_end(std::int64_t sequence, bool ended_by_token) = 0;
};

/// Tokens and seconds. The prompt's pass gives a sequence's first new token, each step one further token.
struct GenerationTimes {
  std::int64_t prompt_tokens = 0;  ///< prompt tokens run through the model: at most T per prompt
  double prompt_s = 0.0;
  std::int64_t step_tokens = 0;
  double step_s = 0.0;

  GenerationTimes& operator+=(const GenerationTimes& other);
};

/// Continues several token sequences at once, with a cache of keys and values.
///   prompt   blocks of at most kBlockRows tokens; the last block gives the logits of the first new token
///   step     one new token of every active sequence, as the rows of one call of Evaluator::decode
/// When a sequence ends, the next prompt takes its slot. A sequence that grows beyond T = config().seq tokens is cut to
/// its last T tokens and rerun for each further token, as Generator does for every token. Random numbers are Philox of
/// (seed, token, prompt, sample), so a text depends neither on the ranks nor on the other prompts and samples.
class CachedGenerator {
 public:
  static constexpr std::int64_t kBlockRows = kHostIsDevice ? 256 : 1024;

  /// Takes the cache for `sequences` of `longest` tokens, at most T. `vocab`: tokens that may be picked.
  CachedGenerator(Evaluator& evaluator, std::int64_t vocab, std::int64_t sequences, std::int64_t longest,
                  MemoryLedger& ledger);

  /// Bytes that a CachedGenerator of these extents takes. Precedes its construction.
  static std::int64_t bytes(Evaluator& evaluator, std::int64_t sequences, std::int64_t longest);

  /// Collective, unless order.alone: every rank gets the same tokens.
  GenerationTimes run(const GenerationOrder& order, TokenListener& listener);

 private:
  /// A slot of the cache, and the sequence in it.
  struct Slot {
    std::int64_t sequence = -1;  // -1: free
    std::vector<Token> tokens;   // prompt and new tokens; of a free slot, those of its last sequence
    std::int64_t cut = 0;        // how many of `tokens`, from the first, the model no longer sees
    std::int64_t cached = 0;     // how many behind them are in the cache
    std::int64_t generated = 0;
    [[nodiscard]] bool is_free() const { return sequence < 0; }
    [[nodiscard]] std::int64_t seen() const { return static_cast<std::int64_t>(tokens.size()) - cut; }
    [[nodiscard]] std::int64_t pending() const { return seen() - cached; }
  };
  struct Arrays {
    Vector<Token> tokens;            // (rows)
    Vector<std::int32_t> sequences;  // (rows)
    Vector<std::int32_t> positions;  // (rows)
    Matrix<float> logits;            // (sequences, V)
  };
  struct HostRow {
    Token token;
    std::int32_t sequence, position;
  };

  static Arrays take(Evaluator& evaluator, std::int64_t sequences, std::int64_t positions, MemoryLedger& ledger);
  void begin(std::size_t slot, std::int64_t sequence);
  void end(std::size_t slot, bool ended_by_token);
  void catch_up(std::size_t slot);
  void step();
  void decode(const std::vector<HostRow>& rows, std::int64_t num_logits);
  void pick(const std::vector<std::size_t>& slots);
  void accept(std::size_t slot, Token token);

  Evaluator& evaluator_;
  std::int64_t vocab_;
  std::int64_t positions_;  // of the cache
  std::int64_t block_;
  std::vector<Slot> slots_;
  Arrays arrays_;
  std::vector<float> host_logits_;
  const GenerationOrder* order_ = nullptr;  // of the current run
  TokenListener* listener_ = nullptr;
  GenerationTimes times_;
};

}  // namespace kozero::train
