// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// generator.cpp: generation by whole windows, and generation with a cache.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/train/generator.hpp>

namespace kozero::train {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr Token kNoToken = -1;

/// Throws Error(non_finite), seen by all ranks, if one is kNoToken.
std::vector<Token> from_first_rank(distributed::Communicator& comm, const std::vector<Token>& tokens) {
  std::string bytes(tokens.size() * sizeof(Token), '\0');
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  bytes = comm.broadcast_control(bytes);
  std::vector<Token> agreed(tokens.size());
  require(bytes.size() == agreed.size() * sizeof(Token), "generation: ranks pick for other numbers of sequences");
  std::memcpy(agreed.data(), bytes.data(), bytes.size());
  if (std::ranges::find(agreed, kNoToken) == agreed.end()) return agreed;
  throw Error(Failure::non_finite,
              "a logit of the next token is not finite, though every weight is: numbers computed from the weights "
              "overflow; f32 (train.precision) has the widest range",
              Error::Seen::by_all_ranks);
}

/// The token that `uniform` picks; kNoToken if a logit is not finite.
Token picked_from(std::span<float> logits, const std::vector<Token>& sequence, const Sampling& sampling,
                  double uniform) {
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) return kNoToken;
  penalize(logits, sequence, sampling.repetition_penalty);
  return pick_token(logits, sampling, uniform);
}

}  // namespace

Generator::Generator(Evaluator& evaluator, std::int64_t vocab, MemoryLedger& ledger)
    : evaluator_(evaluator),
      vocab_(vocab),
      context_(ledger.take<Token>(Memory::workspace, "generation context", 1, evaluator.seq())),
      logits_(ledger.take<float>(Memory::workspace, "generation logits", evaluator.config().vocab)),
      host_context_(context_.extent(1)),
      host_logits_(logits_.extent(0)) {}

std::vector<Token> Generator::continued(const std::vector<Token>& prompt, std::int64_t count,
                                        const Sampling& sampling) {
  require(!prompt.empty(), "a generation needs at least one token to follow");
  const std::uint64_t key = stream_key(sampling.seed, "generate");
  std::vector<Token> tokens = prompt;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto logits = logits_after(tokens).first(static_cast<std::size_t>(vocab_));
    const double uniform = uniform_of(philox(key, counter_of(static_cast<std::uint64_t>(i))).x[0]);
    const Token mine = picked_from(logits, tokens, sampling, uniform);
    tokens.push_back(from_first_rank(evaluator_.comm(), {mine}).front());
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
}

std::span<float> Generator::logits_after(const std::vector<Token>& tokens) {
  const auto seen = std::min(tokens.size(), host_context_.size());
  std::fill(host_context_.begin(), host_context_.end(), Token{0});
  std::copy(tokens.end() - static_cast<std::ptrdiff_t>(seen), tokens.end(), host_context_.begin());
  Kokkos::deep_copy(context_, HostMatrix<Token>(host_context_.data(), 1, host_context_.size()));
  evaluator_.next_token_logits(context_, static_cast<std::int64_t>(seen), logits_);
  Kokkos::deep_copy(HostVector<float>(host_logits_.data(), host_logits_.size()), logits_);
  return host_logits_;
}

std::int64_t GenerationOrder::longest() const {
  std::size_t most = 0;
  for (const auto& prompt : prompts) most = std::max(most, prompt.size());
  return static_cast<std::int64_t>(most) + count;
}

GenerationTimes& GenerationTimes::operator+=(const GenerationTimes& other) {
  prompt_tokens += other.prompt_tokens;
  prompt_s += other.prompt_s;
  step_tokens += other.step_tokens;
  step_s += other.step_s;
  return *this;
}

CachedGenerator::Arrays CachedGenerator::take(Evaluator& evaluator, std::int64_t sequences, std::int64_t positions,
                                              MemoryLedger& ledger) {
  const std::int64_t rows = std::max(std::min(kBlockRows, positions), sequences);
  evaluator.reserve_cache(ledger, {.sequences = sequences, .positions = positions, .rows = rows});
  return {.tokens = ledger.take<Token>(Memory::workspace, "new tokens", rows),
          .sequences = ledger.take<std::int32_t>(Memory::workspace, "sequences of new tokens", rows),
          .positions = ledger.take<std::int32_t>(Memory::workspace, "positions of new tokens", rows),
          .logits = ledger.take<float>(Memory::workspace, "generation logits", sequences, evaluator.config().vocab)};
}

CachedGenerator::CachedGenerator(Evaluator& evaluator, std::int64_t vocab, std::int64_t sequences, std::int64_t longest,
                                 MemoryLedger& ledger)
    : evaluator_(evaluator),
      vocab_(vocab),
      positions_(std::min(longest, evaluator.config().seq)),
      block_(std::min(kBlockRows, positions_)),
      slots_(static_cast<std::size_t>(sequences)),
      arrays_(take(evaluator, sequences, positions_, ledger)),
      host_logits_(arrays_.logits.extent(0) * arrays_.logits.extent(1)) {}

std::int64_t CachedGenerator::bytes(Evaluator& evaluator, std::int64_t sequences, std::int64_t longest) {
  MemoryLedger ledger(MemoryLedger::Mode::plan);
  static_cast<void>(take(evaluator, sequences, std::min(longest, evaluator.config().seq), ledger));
  return ledger.total();
}

GenerationTimes CachedGenerator::run(const GenerationOrder& order, TokenListener& listener) {
  order_ = &order;
  listener_ = &listener;
  times_ = {};
  std::int64_t next = 0;
  const auto any_under_way = [&] {
    return std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.is_free(); });
  };
  while (next < order.num_sequences() || any_under_way()) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      while (slots_[slot].is_free() && next < order.num_sequences()) begin(slot, next++);
    }
    step();
  }
  return times_;
}

/// Assigns the slot to the sequence and runs its prompt. The sequence may end in this call.
void CachedGenerator::begin(std::size_t slot, std::int64_t sequence) {
  const auto& prompt = order_->prompts[static_cast<std::size_t>(sequence / order_->samples)];
  require(!prompt.empty(), "a generation needs at least one token to follow");
  const Slot last = std::exchange(slots_[slot], {.sequence = sequence, .tokens = prompt});
  if (order_->count == 0) return end(slot, false);
  Slot& state = slots_[slot];
  if (order_->reuses_cache && last.cut == 0) {
    // The prompt's last token is computed anew, since its logits are needed.
    const std::int64_t most = std::min({last.cached, std::ssize(prompt) - 1, positions_ - 1});
    const auto differs = std::mismatch(prompt.begin(), prompt.begin() + most, last.tokens.begin()).first;
    state.cached = differs - prompt.begin();
  }
  const auto start = std::chrono::steady_clock::now();
  times_.prompt_tokens += std::min(positions_, state.pending());
  catch_up(slot);
  times_.prompt_s += seconds_since(start);
}

/// Frees the slot; its cache keeps the tokens.
void CachedGenerator::end(std::size_t slot, bool ended_by_token) {
  const std::int64_t sequence = std::exchange(slots_[slot].sequence, -1);
  listener_->on_end(sequence, ended_by_token);
}

/// Runs the slot's tokens that are not in the cache yet, and picks the next token.
void CachedGenerator::catch_up(std::size_t slot) {
  Slot& state = slots_[slot];
  if (const std::int64_t beyond = state.seen() - positions_; beyond > 0) {
    state.cut += beyond;
    state.cached = 0;
  }
  while (state.pending() > 0) {
    std::vector<HostRow> rows;
    for (std::int64_t i = state.cached; i < state.cached + std::min(block_, state.pending()); ++i) {
      rows.push_back({state.tokens[static_cast<std::size_t>(state.cut + i)], static_cast<std::int32_t>(slot),
                      static_cast<std::int32_t>(i)});
    }
    state.cached += static_cast<std::int64_t>(rows.size());
    decode(rows, state.pending() == 0 ? 1 : 0);
  }
  pick({slot});
}

/// Picks the next token of each sequence from its last one. A sequence longer than the cache goes through catch_up.
void CachedGenerator::step() {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::size_t> moving;
  std::vector<HostRow> rows;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    Slot& state = slots_[slot];
    if (state.is_free()) continue;
    if (state.seen() > positions_) {
      catch_up(slot);
      ++times_.step_tokens;
      continue;
    }
    moving.push_back(slot);
    rows.push_back({state.tokens.back(), static_cast<std::int32_t>(slot), static_cast<std::int32_t>(state.cached++)});
  }
  if (!moving.empty()) {
    decode(rows, static_cast<std::int64_t>(rows.size()));
    pick(moving);
    times_.step_tokens += static_cast<std::int64_t>(moving.size());
  }
  times_.step_s += seconds_since(start);
}

void CachedGenerator::decode(const std::vector<HostRow>& rows, std::int64_t num_logits) {
  const std::size_t count = rows.size();
  std::vector<Token> tokens(count);
  std::vector<std::int32_t> sequences(count);
  std::vector<std::int32_t> positions(count);
  for (std::size_t n = 0; n < count; ++n) {
    tokens[n] = rows[n].token;
    sequences[n] = rows[n].sequence;
    positions[n] = rows[n].position;
  }
  const auto sent = [&](const auto& device, const auto& host) {
    const auto used = slice(device, 0, static_cast<std::int64_t>(count));
    Kokkos::deep_copy(used, HostVector<const std::int32_t>(host.data(), count));
    return used;
  };
  const auto logits =
      Matrix<float>(arrays_.logits.data(), static_cast<std::size_t>(num_logits), arrays_.logits.extent(1));
  evaluator_.decode(
      {sent(arrays_.tokens, tokens), {sent(arrays_.sequences, sequences), sent(arrays_.positions, positions)}}, logits);
  if (num_logits > 0) {
    Kokkos::deep_copy(HostMatrix<float>(host_logits_.data(), logits.extent(0), logits.extent(1)), logits);
  }
}

/// Picks the next tokens of these slots from the last logits.
void CachedGenerator::pick(const std::vector<std::size_t>& slots) {
  const std::uint64_t key = stream_key(order_->sampling.seed, "generate");
  const std::size_t columns = arrays_.logits.extent(1);
  std::vector<Token> picked;
  for (std::size_t row = 0; row < slots.size(); ++row) {
    const Slot& state = slots_[slots[row]];
    const std::int64_t prompt = order_->first_prompt + state.sequence / order_->samples;
    const std::int64_t sample = state.sequence % order_->samples;
    const Words4 counter = counter_of(static_cast<std::uint64_t>(state.generated),
                                      static_cast<std::uint64_t>(prompt) << 32U | static_cast<std::uint64_t>(sample));
    const std::span<float> logits(host_logits_.data() + row * columns, static_cast<std::size_t>(vocab_));
    picked.push_back(picked_from(logits, state.tokens, order_->sampling, uniform_of(philox(key, counter).x[0])));
  }
  if (!order_->alone) picked = from_first_rank(evaluator_.comm(), picked);
  for (std::size_t row = 0; row < slots.size(); ++row) accept(slots[row], picked[row]);
}

void CachedGenerator::accept(std::size_t slot, Token token) {
  Slot& state = slots_[slot];
  ++state.generated;
  const bool ended_by_token = order_->ends && order_->ends(token);
  if (!ended_by_token) listener_->on_token(state.sequence, token);
  if (ended_by_token || state.generated == order_->count) {
    end(slot, ended_by_token);
  } else {
    state.tokens.push_back(token);
  }
}

}  // namespace kozero::train
