// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_decoder.cpp: the order of calls, batches of every size, chunks of the head, and the three functions with a loss.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include <kozero/model/head.hpp>

#include "tiny_models.hpp"

namespace kozero::tests {
namespace {

using Catch::Approx;

std::vector<std::vector<float>> all_gradients(const TinyModel& tiny) {
  std::vector<std::vector<float>> all;
  for (std::size_t row = 0; row < tiny.model->parameters().rows().size(); ++row) {
    all.push_back(tiny.access.gradient_of(static_cast<int>(row)));
  }
  return all;
}

void check_close(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t row = 0; row < a.size(); ++row) {
    float largest = 0.0F;
    float difference = 0.0F;
    for (std::size_t i = 0; i < a[row].size(); ++i) {
      largest = std::max(largest, std::abs(a[row][i]));
      difference = std::max(difference, std::abs(a[row][i] - b[row][i]));
    }
    INFO("row " << row);
    CHECK(difference <= 2e-5F * largest);
  }
}

const std::vector<std::string> kTiedCalls = {"acquire embedding", "release embedding",  //
                                             "acquire block.0",   "release block.0",    //
                                             "acquire block.1",   "release block.1",    //
                                             "acquire head",      "acquire embedding", "release embedding",
                                             "release head",      "ready head",        "acquire block.1",
                                             "release block.1",   "ready block.1",                       //
                                             "acquire block.0",   "release block.0",   "ready block.0",  //
                                             "ready embedding"};

const std::vector<std::string> kUntiedCalls = {"acquire embedding", "release embedding",                   //
                                               "acquire block.0",   "release block.0",                     //
                                               "acquire block.1",   "release block.1",                     //
                                               "acquire head",      "release head",      "ready head",     //
                                               "acquire block.1",   "release block.1",   "ready block.1",  //
                                               "acquire block.0",   "release block.0",   "ready block.0",  //
                                               "ready embedding"};

TEST_CASE("units are acquired, released and handed on in the agreed order") {
  for (const bool tied : {true, false}) {
    for (const auto& config : {tiny_gpt2(tied), tiny_llama(tied), tiny_qwen3(tied)}) {
      TinyModel tiny(config, 2);
      const auto batch = TokenBatch::noise(2, 7, 19);
      forward_backward(*tiny.model, tiny.access, batch.view(), 1.0F);
      CHECK(tiny.access.calls == (tied ? kTiedCalls : kUntiedCalls));
      CHECK_FALSE(tiny.access.holds_any());
    }
  }
}

const std::vector<std::string> kTiedCallsInBlocks = {"acquire embedding.0",
                                                     "release embedding.0",
                                                     "acquire embedding.1",
                                                     "release embedding.1",  //
                                                     "acquire embedding.2",
                                                     "release embedding.2",
                                                     "acquire positions",
                                                     "release positions",  //
                                                     "acquire block.0",
                                                     "release block.0",
                                                     "acquire block.1",
                                                     "release block.1",
                                                     "acquire head",  //
                                                     "acquire embedding.2",
                                                     "release embedding.2",
                                                     "acquire embedding.1",
                                                     "release embedding.1",  //
                                                     "acquire embedding.0",
                                                     "release embedding.0",  //
                                                     "acquire embedding.0",
                                                     "release embedding.0",
                                                     "ready embedding.0",  //
                                                     "acquire embedding.1",
                                                     "release embedding.1",
                                                     "ready embedding.1",  //
                                                     "acquire embedding.2",
                                                     "release embedding.2",
                                                     "ready embedding.2",  //
                                                     "release head",
                                                     "ready head",  //
                                                     "acquire block.1",
                                                     "release block.1",
                                                     "ready block.1",  //
                                                     "acquire block.0",
                                                     "release block.0",
                                                     "ready block.0",  //
                                                     "ready lookups embedding.0",
                                                     "ready lookups embedding.1",
                                                     "ready lookups embedding.2",
                                                     "ready positions"};

TEST_CASE("blocks of a vocabulary are held one at a time, and each of their two gradients is handed on once") {
  TinyModel tiny(in_blocks(tiny_gpt2(true), 8), 2);
  const auto batch = TokenBatch::noise(2, 7, 19);
  forward_backward(*tiny.model, tiny.access, batch.view(), 1.0F);
  CHECK(tiny.access.calls == kTiedCallsInBlocks);
  tiny.access.calls.clear();
  tiny.access.clear_gradients();
  CHECK(forward_backward(*tiny.model, tiny.access, batch.part(0, 0), 1.0F) == 0.0);
  CHECK(tiny.access.calls == kTiedCallsInBlocks);
  for (const auto& gradient : all_gradients(tiny)) {
    for (const float value : gradient) CHECK(value == 0.0F);
  }
}

/// Gradients by tensor; those of a tensor's rows one after the other.
std::vector<std::vector<float>> gradients_of_tensors(const TinyModel& tiny) {
  std::vector<std::vector<float>> all(tiny.model->parameters().tensors().size());
  for (int row = 0; row < std::ssize(tiny.model->parameters().rows()); ++row) {
    auto& tensor = all[static_cast<std::size_t>(tiny.model->parameters().row(row).tensor)];
    const std::vector<float> part = tiny.access.gradient_of(row);
    tensor.insert(tensor.end(), part.begin(), part.end());
  }
  return all;
}

TEST_CASE("a vocabulary in blocks gives the losses, gradients and logits of the whole, in no more scratch") {
  for (model::Config config : {tiny_gpt2(true, 0.3F), tiny_gpt2(false), tiny_llama(true), tiny_qwen3(false)}) {
    config.seq = 200;  // the head has more than one chunk of rows
    const auto batch = TokenBatch::noise(3, 200, 19, 11);
    TinyModel whole(config, 3);
    const double loss = forward_backward(*whole.model, whole.access, batch.view(), 0.1F);
    for (const std::int64_t rows : {8, 16, 24}) {
      TinyModel blocks(in_blocks(config, rows), 3);
      CAPTURE(config.arch, config.tie_embeddings, rows);
      CHECK(forward_backward(*blocks.model, blocks.access, batch.view(), 0.1F) == Approx(loss).epsilon(1e-6));
      check_close(gradients_of_tensors(blocks), gradients_of_tensors(whole));
      CHECK(blocks.model->evaluate(blocks.access, batch.view()) ==
            Approx(whole.model->evaluate(whole.access, batch.view())).epsilon(1e-6));
      CHECK(blocks.ledger.bytes(Memory::workspace) <= whole.ledger.bytes(Memory::workspace));
    }
  }
}

TEST_CASE("a batch of zero sequences makes the same calls, costs nothing and adds nothing") {
  TinyModel tiny(tiny_gpt2(true, 0.1F), 2);
  const auto batch = TokenBatch::noise(2, 7, 19);
  CHECK(forward_backward(*tiny.model, tiny.access, batch.part(0, 0), 1.0F) == 0.0);
  CHECK(tiny.access.calls == kTiedCalls);
  for (const auto& gradient : all_gradients(tiny)) {
    for (const float value : gradient) CHECK(value == 0.0F);
  }
  CHECK(tiny.model->evaluate(tiny.access, model::Batch{}) == 0.0);
}

TEST_CASE("a batch in parts gives the loss and gradient of the whole") {
  for (const auto& config : {tiny_gpt2(true, 0.3F), tiny_gpt2(false), tiny_llama(false), tiny_qwen3(true)}) {
    const auto batch = TokenBatch::noise(3, 7, 19, 11);
    TinyModel whole(config, 3);
    TinyModel parts(config, 3);
    const double loss = forward_backward(*whole.model, whole.access, batch.view(), 0.1F);
    double sum = forward_backward(*parts.model, parts.access, batch.part(0, 1), 0.1F);
    sum += forward_backward(*parts.model, parts.access, batch.part(1, 2), 0.1F);
    CHECK(sum == Approx(loss).epsilon(1e-6));
    check_close(all_gradients(whole), all_gradients(parts));
  }
}

TEST_CASE("the head's chunks of rows, the last one short, give what one chunk gives") {
  model::Config config = tiny_gpt2(true);
  config.seq = 200;
  const auto batch = TokenBatch::noise(3, 200, 19);
  STATIC_REQUIRE(200 < model::Head<float>::kChunkRows);
  STATIC_REQUIRE((600 > model::Head<float>::kChunkRows || !kHostIsDevice));
  TinyModel chunked(config, 3);
  TinyModel single(config, 1);
  const double loss = forward_backward(*chunked.model, chunked.access, batch.view(), 0.1F);
  double sum = 0.0;
  for (int b = 0; b < 3; ++b) sum += forward_backward(*single.model, single.access, batch.part(b, 1), 0.1F);
  CHECK(sum == Approx(loss).epsilon(1e-6));
  check_close(all_gradients(chunked), all_gradients(single));
  CHECK(chunked.model->evaluate(chunked.access, batch.view()) == Approx(loss).epsilon(1e-7));
}

TEST_CASE("evaluation gives the training loss without dropout and touches no gradient") {
  TinyModel tiny(tiny_gpt2(true), 3);
  TinyModel dropping(tiny_gpt2(true, 0.4F), 3);
  const auto batch = TokenBatch::noise(3, 7, 19);
  const double evaluated = dropping.model->evaluate(dropping.access, batch.view());
  for (const auto& gradient : all_gradients(dropping)) {
    for (const float value : gradient) CHECK(value == 0.0F);
  }
  CHECK(evaluated == forward_backward(*tiny.model, tiny.access, batch.view(), 1.0F));
  CHECK(evaluated != forward_backward(*dropping.model, dropping.access, batch.view(), 1.0F));
}

TEST_CASE("next-token logits at each prefix give the loss of the sequence") {
  for (const auto& config : {tiny_gpt2(true), tiny_llama(false), tiny_qwen3(false), in_blocks(tiny_gpt2(true), 8)}) {
    TinyModel tiny(config, 2);
    const auto owner = TokenBatch::noise(1, 7, 19);
    const auto batch = owner.view();
    const Kokkos::View<float*, Kokkos::LayoutRight, DeviceMemory> logits("logits", 19);
    const auto host = Kokkos::create_mirror_view(logits);
    const auto targets = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), batch.targets);
    double loss = 0.0;
    for (std::int64_t t = 0; t < 7; ++t) {
      tiny.model->next_token_logits(tiny.access, batch.inputs, t + 1, Vector<float>(logits.data(), 19));
      Kokkos::deep_copy(host, logits);
      double sum = 0.0;
      for (int v = 0; v < 19; ++v) sum += std::exp(double{host(v)});
      loss += std::log(sum) - double{host(targets(0, t))};
    }
    CHECK(loss == Approx(tiny.model->evaluate(tiny.access, batch)).epsilon(1e-5));
  }
}

TEST_CASE("a shorter window than seq is evaluated; a longer batch than reserved is refused") {
  TinyModel tiny(tiny_llama(true), 2);
  CHECK(tiny.model->evaluate(tiny.access, TokenBatch::noise(2, 4, 19).view()) > 0.0);
  CHECK_THROWS_AS(tiny.model->evaluate(tiny.access, TokenBatch::noise(3, 7, 19).view()), Error);
  CHECK_THROWS_AS(tiny.model->evaluate(tiny.access, TokenBatch::noise(1, 8, 19).view()), Error);
}

TEST_CASE("dropout is a function of the sample, and unbiased") {
  TinyModel tiny(tiny_gpt2(true, 0.1F), 1);
  const auto same = TokenBatch::noise(1, 7, 19, 3);
  const double first = forward_backward(*tiny.model, tiny.access, same.view(), 1.0F);
  CHECK(first == forward_backward(*tiny.model, tiny.access, same.view(), 1.0F));

  // To second order in the noise the mean loss over samples stays near the loss without dropout.
  std::vector<Token> tokens(7);
  for (Token t = 0; t < 7; ++t) tokens[static_cast<std::size_t>(t)] = (5 * t) % 19;
  const double without = tiny.model->evaluate(tiny.access, TokenBatch(tokens, tokens, 7).view());
  double mean = 0.0;
  double spread = 0.0;
  constexpr int kDraws = 400;
  for (std::uint64_t sample = 0; sample < kDraws; ++sample) {
    const TokenBatch drawn(tokens, tokens, 7, sample);
    const double loss = forward_backward(*tiny.model, tiny.access, drawn.view(), 1.0F);
    mean += loss / kDraws;
    spread += std::abs(loss - without) / kDraws;
  }
  CHECK(spread > 0.01 * without);
  CHECK(mean == Approx(without).epsilon(0.15));
}

TEST_CASE("what backward computes again changes no bit of loss and gradients, and saves memory") {
  const auto deep = [](model::Config config) {
    config.layers = 5;
    return config;
  };
  for (const auto& config : {deep(tiny_gpt2(true, 0.1F)), deep(tiny_llama(false)), deep(tiny_qwen3(true))}) {
    const auto batch = TokenBatch::noise(2, 7, 19, 3);
    TinyModel kept(config, 2);
    const double loss = forward_backward(*kept.model, kept.access, batch.view(), 1.0F);
    std::int64_t before = kept.ledger.bytes(Memory::activations);
    for (const auto& recompute : {model::Recompute{7}, model::Recompute{3}, model::Recompute{2},
                                  model::Recompute{1, true}, model::Recompute{1}}) {
      TinyModel tiny(config, 2, recompute);
      tiny.access.units_held = recompute.blocks;
      CAPTURE(config.arch, recompute.blocks, recompute.keeps_attention);
      for (int again = 0; again < 2; ++again) {
        tiny.access.clear_gradients();
        CHECK(forward_backward(*tiny.model, tiny.access, batch.view(), 1.0F) == loss);
        for (int row = 0; row < std::ssize(tiny.model->parameters().rows()); ++row) {
          CHECK(tiny.access.gradient_of(row) == kept.access.gradient_of(row));
        }
      }
      const std::int64_t bytes = tiny.ledger.bytes(Memory::activations);
      CHECK((recompute.blocks == 7 ? bytes == before : bytes < before));
      before = bytes;
    }
  }
}

TEST_CASE("frozen tensors get no gradient, the others get theirs, and backward ends at the lowest that trains") {
  for (const auto& recompute : {model::Recompute{}, model::Recompute{2}, model::Recompute{1}}) {
    for (model::Config config : {tiny_gpt2(true, 0.1F), tiny_llama(false), tiny_qwen3(false)}) {
      config.layers = 5;
      const auto batch = TokenBatch::noise(2, 7, 19, 3);
      TinyModel all(config, 2, recompute);
      config.freeze = {"*.0.*", "*.1.*", "*.2.*", "*.4.*", config.arch == "gpt2" ? "w?e.weight" : "embed_tokens.*"};
      TinyModel some(config, 2, recompute);
      for (TinyModel* tiny : {&all, &some}) tiny->access.units_held = std::max(recompute.blocks, 1);
      const double loss = forward_backward(*all.model, all.access, batch.view(), 1.0F);
      CHECK(forward_backward(*some.model, some.access, batch.view(), 1.0F) == loss);
      CAPTURE(config.arch, recompute.blocks);
      for (const Parameter& row : some.model->parameters().rows()) {
        const auto index = static_cast<int>(&row - some.model->parameters().rows().data());
        const auto& of_all = all.model->parameters().rows();
        const auto same = std::ranges::find(of_all, row.name, &Parameter::name) - of_all.begin();
        const auto gradient = some.access.gradient_of(index);
        CAPTURE(row.name);
        if (row.trainable) {
          CHECK(gradient == all.access.gradient_of(static_cast<int>(same)));
        } else {
          CHECK(gradient == std::vector<float>(gradient.size(), 0.0F));
        }
      }
      CHECK_FALSE(some.access.holds_any());
      CHECK(std::ranges::count(some.access.calls, "ready block.3") == 1);
      CHECK(std::ranges::count(some.access.calls, "ready block.2") == 0);
      const int again = recompute.blocks == 2 ? 2 : 1;  // together with block 3, whose activations are recomputed
      CHECK(std::ranges::count(some.access.calls, "acquire block.2") == again);
      CHECK(std::ranges::count(some.access.calls, "acquire block.1") == 1);
      CHECK(some.model->flops_per_token() < 0.7 * all.model->flops_per_token());
    }
  }
}

TEST_CASE("several blocks in a unit change no bit, and the unit is acquired once a pass") {
  const auto shaped = [](model::Config config, std::int64_t blocks_in_unit) {
    config.layers = 5;
    config.blocks_in_unit = blocks_in_unit;
    return config;
  };
  struct Case {
    std::int64_t in_unit;
    model::Recompute recompute;
    std::vector<std::string> backward;  // the calls from the second acquisition of the last block's unit on
  };
  const std::vector<Case> cases = {
      {2,
       {},
       {"acquire block.4", "release block.4", "ready block.4", "acquire block.2-3", "release block.2-3",
        "ready block.2-3", "acquire block.0-1", "release block.0-1", "ready block.0-1"}},
      {7, {}, {"acquire block.0-4", "release block.0-4", "ready block.0-4"}},
      {3,
       {1},
       {"acquire block.3-4", "release block.3-4", "ready block.3-4", "acquire block.0-2", "release block.0-2",
        "ready block.0-2"}},
      {2,
       {4},
       {"acquire block.4", "release block.4", "ready block.4", "acquire block.0-1", "acquire block.2-3",
        "release block.2-3", "ready block.2-3", "release block.0-1", "ready block.0-1"}},
      {4,
       {2, true},
       {"acquire block.4", "release block.4", "ready block.4", "acquire block.0-3", "release block.0-3",
        "ready block.0-3"}}};
  for (const auto& config : {tiny_gpt2(true, 0.1F), tiny_llama(false)}) {
    const auto batch = TokenBatch::noise(2, 7, 19, 3);
    TinyModel alone(shaped(config, 1), 2);
    const double loss = forward_backward(*alone.model, alone.access, batch.view(), 1.0F);
    for (const Case& each : cases) {
      TinyModel tiny(shaped(config, each.in_unit), 2, each.recompute);
      tiny.access.units_held = each.in_unit == 2 && each.recompute.blocks == 4 ? 2 : 1;
      CAPTURE(config.arch, each.in_unit, each.recompute.blocks);
      for (int again = 0; again < 2; ++again) {
        tiny.access.clear_gradients();
        tiny.access.calls.clear();
        CHECK(forward_backward(*tiny.model, tiny.access, batch.view(), 1.0F) == loss);
        for (int row = 0; row < std::ssize(tiny.model->parameters().rows()); ++row) {
          CHECK(tiny.access.gradient_of(row) == alone.access.gradient_of(row));
        }
        std::vector<std::string> calls;
        for (const std::string& call : tiny.access.calls) {
          if (call.find("block") != std::string::npos) calls.push_back(call);
        }
        const auto forwards = static_cast<std::ptrdiff_t>(2 * ((5 + each.in_unit - 1) / each.in_unit));
        CHECK(std::vector<std::string>(calls.begin() + forwards, calls.end()) == each.backward);
      }
      CHECK_FALSE(tiny.access.holds_any());
    }
  }
}

TEST_CASE("a planning ledger books what a run takes, without touching memory") {
  const model::Config linear{.arch = "linear", .dim = 5};
  for (const auto& config : {tiny_gpt2(true, 0.1F), tiny_llama(false), tiny_qwen2(false), tiny_qwen3(true), linear}) {
    MemoryLedger plan(MemoryLedger::Mode::plan);
    MemoryLedger run;
    model::make_model<float>(config)->reserve(plan, 3);
    model::make_model<float>(config)->reserve(run, 3);
    if (config.arch != "linear") {
      const std::int64_t before = plan.total();
      model::make_model<float>(config)->reserve_cache(plan, {.sequences = 2, .positions = 7, .rows = 7});
      model::make_model<float>(config)->reserve_cache(run, {.sequences = 2, .positions = 7, .rows = 7});
      const std::int64_t kv_dim = config.arch == "gpt2" ? 15 : 2 * 6;
      CHECK(plan.total() - before >= 2 * 2 * 2 * 32 * kv_dim * 4);  // layers, keys and values, sequences, a tile
    }
    CHECK(plan.total() == run.total());
    CHECK(plan.bytes(Memory::activations) == run.bytes(Memory::activations));
    CHECK(plan.bytes(Memory::activations) > 0);
    CHECK(plan.bytes(Memory::parameters) == 0);
  }
}

TEST_CASE("a norm of q and k keeps no further activation") {
  MemoryLedger plain(MemoryLedger::Mode::plan);
  MemoryLedger normed(MemoryLedger::Mode::plan);
  model::make_model<float>(tiny_llama(true))->reserve(plain, 3);
  model::make_model<float>(tiny_qwen3(true))->reserve(normed, 3);
  CHECK(normed.bytes(Memory::activations) == plain.bytes(Memory::activations));
  const std::int64_t num_rows = 3 * 7;
  CHECK(normed.bytes(Memory::workspace) >= plain.bytes(Memory::workspace) + num_rows * (8 * 6 + 6) * 4);
}

}  // namespace
}  // namespace kozero::tests
