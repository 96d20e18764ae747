// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstring>

#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/train/cached_generator.hpp>

namespace kozero::train {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<Token> from_first_rank(dist::Communicator& comm, const std::vector<Token>& tokens) {
  std::string bytes(tokens.size() * sizeof(Token), '\0');
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  bytes = comm.broadcast_control(bytes);
  std::vector<Token> agreed(tokens.size());
  require(bytes.size() == agreed.size() * sizeof(Token), "generation: ranks pick for other numbers of sequences");
  std::memcpy(agreed.data(), bytes.data(), bytes.size());
  return agreed;
}

}  // namespace

std::int64_t GenerationOrder::longest() const {
  std::size_t most = 0;
  for (const auto& prompt : prompts) most = std::max(most, prompt.size());
  return static_cast<std::int64_t>(most) + count;
}

CachedGenerator::CachedGenerator(model::Network& network, dist::Communicator& comm, std::int64_t vocab,
                                 std::int64_t sequences, std::int64_t longest, MemoryLedger& ledger)
    : network_(network),
      comm_(comm),
      vocab_(vocab),
      positions_(std::min(longest, network.config().seq)),
      block_(std::min(kBlockRows, positions_)),
      slots_(static_cast<std::size_t>(sequences)) {
  const std::int64_t rows = std::max(block_, sequences);
  network_.reserve_cache(ledger, {.sequences = sequences, .positions = positions_, .rows = rows});
  tokens_ = ledger.take<Token>(Memory::workspace, "new tokens", rows);
  sequences_ = ledger.take<std::int32_t>(Memory::workspace, "sequences of new tokens", rows);
  row_positions_ = ledger.take<std::int32_t>(Memory::workspace, "positions of new tokens", rows);
  logits_ = ledger.take<float>(Memory::workspace, "generation logits", sequences, network.config().vocab);
  host_logits_.resize(logits_.extent(0) * logits_.extent(1));
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

/// Gives the slot to the sequence, and runs its prompt. A sequence may end there.
void CachedGenerator::begin(std::size_t slot, std::int64_t sequence) {
  const auto& prompt = order_->prompts[static_cast<std::size_t>(sequence / order_->samples)];
  require(!prompt.empty(), "a generation needs at least one token to follow");
  slots_[slot] = {.sequence = sequence, .tokens = prompt};
  if (order_->count == 0) {
    listener_->on_end(sequence, false);
    slots_[slot] = {};
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  catch_up(slot);
  times_.prompt_s += seconds_since(start);
  times_.prompt_tokens += std::min(positions_, static_cast<std::int64_t>(prompt.size()));
}

/// Runs the slot's tokens that are not in the cache yet, and picks the next one.
void CachedGenerator::catch_up(std::size_t slot) {
  Slot& state = slots_[slot];
  const std::int64_t beyond = static_cast<std::int64_t>(state.tokens.size()) - positions_;
  if (beyond > 0) {
    state.tokens.erase(state.tokens.begin(), state.tokens.begin() + beyond);
    state.cached = 0;
  }
  while (state.pending() > 0) {
    std::vector<HostRow> rows;
    for (std::int64_t i = state.cached; i < state.cached + std::min(block_, state.pending()); ++i) {
      rows.push_back(
          {state.tokens[static_cast<std::size_t>(i)], static_cast<std::int32_t>(slot), static_cast<std::int32_t>(i)});
    }
    state.cached += static_cast<std::int64_t>(rows.size());
    decode(rows, state.pending() == 0 ? 1 : 0);
  }
  pick({slot});
}

/// The next token of each sequence, from the one that was picked last. One that has outgrown the cache waits for
/// catch_up.
void CachedGenerator::step() {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::size_t> moving;
  std::vector<HostRow> rows;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    Slot& state = slots_[slot];
    if (state.is_free()) continue;
    if (static_cast<std::int64_t>(state.tokens.size()) > positions_) {
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
  const auto logits = Matrix<float>(logits_.data(), static_cast<std::size_t>(num_logits), logits_.extent(1));
  network_.decode({sent(tokens_, tokens), {sent(sequences_, sequences), sent(row_positions_, positions)}}, logits);
  if (num_logits > 0) {
    Kokkos::deep_copy(HostMatrix<float>(host_logits_.data(), logits.extent(0), logits.extent(1)), logits);
  }
}

/// The tokens that the last logits give to these slots.
void CachedGenerator::pick(const std::vector<std::size_t>& slots) {
  const std::uint64_t key = stream_key(order_->sampling.seed, "generate");
  const std::size_t columns = logits_.extent(1);
  std::vector<Token> picked;
  for (std::size_t row = 0; row < slots.size(); ++row) {
    const Slot& state = slots_[slots[row]];
    const Words4 counter =
        counter_of(static_cast<std::uint64_t>(state.generated), static_cast<std::uint64_t>(state.sequence));
    const std::span<const float> logits(host_logits_.data() + row * columns, static_cast<std::size_t>(vocab_));
    picked.push_back(pick_token(logits, order_->sampling, uniform_of(philox(key, counter).x[0])));
  }
  picked = from_first_rank(comm_, picked);
  for (std::size_t row = 0; row < slots.size(); ++row) accept(slots[row], picked[row]);
}

void CachedGenerator::accept(std::size_t slot, Token token) {
  Slot& state = slots_[slot];
  const std::int64_t sequence = state.sequence;
  ++state.generated;
  const bool ended_by_token = order_->ends && order_->ends(token);
  if (!ended_by_token) listener_->on_token(sequence, token);
  if (ended_by_token || state.generated == order_->count) {
    slots_[slot] = {};
    listener_->on_end(sequence, ended_by_token);
  } else {
    state.tokens.push_back(token);
  }
}

}  // namespace kozero::train
