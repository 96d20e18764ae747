// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_random_decks.cpp: random models, batches, mixtures and precisions. A run that changes its ranks, stage and back
// end after each save gives the bits of an uninterrupted run on one rank: losses, norms, weights, moments (through the
// weights), loss scale, evaluation, and sums of addends of arbitrary bits.
//   KOZERO_DECKS=200 mpiexec -n 4 test_random_decks      200 decks (`--target random_decks`); default: a fixed sample
#include <array>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include <kozero/distributed/agreement.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/evaluation.hpp>

#include "groups.hpp"
#include "shared_folder.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using tests::TinyRun;
using tests::TinyTraining;

namespace {

/// Random numbers for a deck, the same on all ranks.
class Draws {
 public:
  explicit Draws(std::uint64_t deck) : deck_(deck) {}
  std::int64_t between(std::int64_t least, std::int64_t most) {
    const auto word = philox(29, counter_of(next_++, deck_)).x[0];
    return least + static_cast<std::int64_t>(word % static_cast<std::uint32_t>(most - least + 1));
  }
  bool coin() { return between(0, 1) == 1; }

 private:
  std::uint64_t deck_;
  std::uint64_t next_ = 0;
};

/// Steps up to `last` and a save, under one layout.
struct Leg {
  int ranks = 1;
  const char* backend = "self";
  int stage = 0;
  int ranks_per_group = 0;  ///< 0: all
  bool overlap = true;
  int prefetch_units = 1;
  int ranks_per_node = 0;  ///< > 0: messages between nodes of this number of ranks
  model::Recompute recompute = {};
  std::int64_t blocks_in_unit = 1;
  bool staged = false;
  train::Offload offload = {};
  std::int64_t last = 0;
};

struct RandomDeck {
  TinyRun run;
  std::vector<Leg> legs;
};

model::Config random_model(Draws& draw) {
  model::Config config{.layers = draw.between(1, 4), .heads = draw.between(1, 3), .seed = 5};
  config.vocab = draw.between(17, 71);
  config.seq = 2 * draw.between(1, 5) + 1;
  config.tie_embeddings = draw.coin();
  config.vocab_block = 8 * std::max<std::int64_t>(draw.between(-2, 4), 0);
  if (draw.coin()) {
    config.arch = "gpt2";
    config.dim = config.heads * draw.between(3, 11);
    config.dropout = draw.coin() ? 0.1F : 0.0F;
    return config;
  }
  config.arch = draw.coin() ? "llama" : "qwen3";
  config.head_dim = 2 * draw.between(2, 7);
  config.dim = config.heads * config.head_dim;
  config.kv_heads = draw.coin() ? 1 : config.heads;
  config.ffn = draw.between(9, 75);
  return config;
}

/// Tensors that are not trained, in every second deck.
std::vector<std::string> random_freeze(Draws draw, const std::string& arch) {
  if (draw.coin()) return {};
  const std::vector<std::string> patterns = {
      arch == "gpt2" ? "wte.*" : "embed_tokens.*", arch == "gpt2" ? "h.0.*" : "layers.0.*",
      arch == "gpt2" ? "*.c_attn.*" : "*.k_proj.*", arch == "gpt2" ? "wpe.weight" : "*norm.weight"};
  std::vector<std::string> chosen;
  for (const std::string& pattern : patterns) {
    if (draw.coin()) chosen.push_back(pattern);
  }
  return chosen;
}

/// Adapters, in every third deck.
model::Lora random_lora(Draws draw, const std::string& arch) {
  if (draw.between(0, 2) > 0) return {};
  model::Lora lora{.rank = draw.between(1, 5), .alpha = 4.0F};
  lora.dropout = draw.coin() ? 0.1F : 0.0F;
  lora.rslora = draw.coin();
  const bool is_gpt2 = arch == "gpt2";
  const std::vector<std::vector<std::string>> targets = {
      {"all-linear"}, {is_gpt2 ? "c_attn" : "v_proj"}, {"mlp.*"}, {is_gpt2 ? "h.0.*" : "layers.0.*"}};
  lora.targets = targets[static_cast<std::size_t>(draw.between(0, 3))];
  return lora;
}

/// A mixture of two to four sources, in every second deck.
std::vector<data::MixedSource> random_sources(Draws draw) {
  if (draw.coin()) return {};
  std::vector<data::MixedSource> sources(static_cast<std::size_t>(draw.between(2, 4)));
  for (auto& source : sources) source = {draw.between(1, 20), static_cast<double>(draw.between(1, 9))};
  return sources;
}

RandomDeck random_deck(std::uint64_t number) {
  Draws draw(number);
  RandomDeck deck{.run = {.model = random_model(draw)}, .legs = {}};
  TinyRun& run = deck.run;
  constexpr std::uint64_t kOfBias = 1'000'000;
  run.model.bias = run.model.arch != "gpt2" || Draws(number + kOfBias).between(0, 2) > 0;
  run.precision = std::vector{Precision::f32, Precision::bf16, Precision::fp16}[static_cast<std::size_t>(number % 3)];
  if (run.precision == Precision::fp16) {
    run.loss_scaler = draw.coin() ? train::LossScaler::fixed(0x1p10) : train::LossScaler::dynamic(2, 0x1p14);
  }
  run.micro_batch = draw.between(1, 3);
  run.global_batch = run.micro_batch * draw.between(1, 7);
  run.global_batch -= draw.between(0, run.micro_batch - 1);
  run.num_samples = run.global_batch + draw.between(0, 2 * run.global_batch);  // an epoch's last step may be short
  run.steps = draw.between(4, 6);
  if (draw.between(0, 3) == 0) run.optimizer = "sgd";
  const std::int64_t num_legs = draw.between(2, 3);
  for (std::int64_t i = 0; i < num_legs; ++i) {
    Leg leg{.ranks = static_cast<int>(draw.between(1, 4)), .backend = draw.coin() ? "mpi" : "shm"};
    leg.stage = static_cast<int>(draw.between(0, 3));
    leg.overlap = draw.coin();
    leg.prefetch_units = static_cast<int>(draw.between(0, 2));
    leg.ranks_per_node = draw.coin() ? (leg.ranks == 4 && draw.coin() ? 2 : 1) : 0;
    leg.recompute = {static_cast<int>(draw.between(0, 3)), draw.coin()};
    const bool in_groups = leg.recompute.blocks > 0 && leg.recompute.blocks < run.model.layers;
    if (draw.coin()) leg.blocks_in_unit = in_groups ? draw.between(1, 2) * leg.recompute.blocks : draw.between(1, 4);
    leg.staged = draw.coin();
    if (draw.coin()) {
      const auto kind = draw.coin() ? tests::Kind::disk : tests::Kind::host;
      leg.offload = tests::offloaded_to(kind, leg.stage == 3 && draw.coin(), draw.between(1, 300) << 10);
    }
    if (leg.stage > 0 && leg.ranks % 2 == 0 && draw.coin())
      leg.ranks_per_group = static_cast<int>(draw.between(1, leg.ranks / 2));
    leg.last = i + 1 == num_legs ? run.steps : run.steps * (i + 1) / num_legs;
    deck.legs.push_back(leg);
  }
  run.model.lora = random_lora(Draws(number + (std::uint64_t{5} << 32U)), run.model.arch);
  if (run.model.lora.rank > 0) {
    constexpr std::array kTypes = {BaseType::as_weights, BaseType::int8, BaseType::nf4};
    run.base = kTypes[static_cast<std::size_t>(Draws(number + (std::uint64_t{6} << 32U)).between(0, 2))];
  } else {
    run.model.freeze = random_freeze(Draws(number + (std::uint64_t{1} << 32U)), run.model.arch);
  }
  run.masks_documents = Draws(number + (std::uint64_t{2} << 32U)).coin();
  run.sources = random_sources(Draws(number + (std::uint64_t{3} << 32U)));
  if (!run.sources.empty()) run.num_samples = 0;
  for (const auto& source : run.sources) run.num_samples += source.num_samples;
  run.ignores_targets = Draws(number + (std::uint64_t{4} << 32U)).coin();
  return deck;
}

std::string described(const RandomDeck& deck) {
  const model::Config& model = deck.run.model;
  std::string text = model.arch + ", " + name_of(deck.run.precision) + ", L " + std::to_string(model.layers) + ", C " +
                     std::to_string(model.dim) + ", H " + std::to_string(model.heads) + ", V " +
                     std::to_string(model.vocab) + " in blocks of " + std::to_string(model.vocab_block) + ", T " +
                     std::to_string(model.seq) + ", " + std::to_string(deck.run.global_batch) +
                     " sequences in granules of " + std::to_string(deck.run.micro_batch) +
                     (deck.run.masks_documents ? ", documents masked" : "");
  for (const auto& source : deck.run.sources) {
    text += ", " + std::to_string(source.num_samples) + " samples of weight " + std::to_string(source.weight);
  }
  if (model.lora.rank > 0) {
    text += ", adapters of rank " + std::to_string(model.lora.rank) + " beside " + model.lora.targets.front() +
            (model.lora.dropout > 0.0F ? " with dropout" : "") +
            (deck.run.base == BaseType::as_weights ? ""
             : deck.run.base == BaseType::int8     ? ", int8"
                                                   : ", nf4");
  }
  for (const std::string& pattern : model.freeze) text += ", frozen " + pattern;
  for (const Leg& leg : deck.legs) {
    text += "; " + std::to_string(leg.ranks) + " ranks, " +
            (leg.ranks_per_group > 0 ? "in groups of " + std::to_string(leg.ranks_per_group) + ", " : "") +
            leg.backend + ", stage " + std::to_string(leg.stage) +
            (leg.ranks_per_node > 0 ? ", nodes of " + std::to_string(leg.ranks_per_node) : "") + ", recompute " +
            std::to_string(leg.recompute.blocks) + ", units of " + std::to_string(leg.blocks_in_unit) + " blocks" +
            (leg.staged ? ", staged" : "") + (leg.offload.uses(tests::Kind::disk) ? ", on disk" : "") +
            (leg.offload.uses(tests::Kind::host) ? ", on the host" : "") + " to step " + std::to_string(leg.last);
  }
  return text;
}

/// Bits are compared, so that NaNs are equal to themselves and -0 differs from 0.
using Bits = std::vector<std::uint64_t>;

void add_bits(Bits& all, const tests::TinyResult& result) {
  for (std::size_t i = 0; i < result.losses.size(); ++i) {
    all.push_back(std::bit_cast<std::uint64_t>(result.losses[i]));
    all.push_back(std::bit_cast<std::uint64_t>(result.norms[i]));
  }
}

/// An addend of any magnitude and sign. Every eighth element is -0 in all granules, so its sum must be -0 too.
float addend_at(std::int64_t granule, int tensor, std::int64_t index) {
  if (index % 8 == 0) return -0.0F;
  const auto bits =
      philox(31, counter_of(static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(granule * 64 + tensor)));
  const float magnitude = std::ldexp(static_cast<float>(bits.x[0] >> 8U), -static_cast<int>(bits.x[1] % 40));
  return bits.x[2] % 2 == 0 ? magnitude : -magnitude;
}

/// A step's reduced gradient and its norm, of the addends above. The sum must not include idle ranks' addends.
/// Collective.
std::string sums_of_addends(TinyTraining& training, const TinyRun& run) {
  distributed::Communicator& comm = training.engine().comm();
  const ParameterTable& table = training.engine().parameters();
  const data::Granules granules({0, run.global_batch}, run.micro_batch);
  const int micro_steps = granules.micro_steps(comm.size());
  std::string bytes;
  training.with_state([&](auto& state) {
    for (int step = 0; step < micro_steps; ++step) {
      state.gradients().begin_micro_step({step, micro_steps, granules.busy_ranks(step, comm.size())});
      for (int unit = table.num_units() - 1; unit >= 0; --unit) {
        if (!table.unit(unit).trainable) continue;
        const auto addend = state.gradients().addend(unit);
        for (const auto& row : table.rows_of(unit)) {
          for (std::int64_t i = row.offset; i < row.offset + row.extent(); ++i) {
            const std::int64_t index = row.first + i - row.offset;
            addend.values(i) = addend_at(std::int64_t{step} * comm.size() + comm.rank(), row.tensor, index);
          }
        }
        state.gradients().ready(unit);
      }
    }
    state.finish_gradients();
    const double norm = state.gradients().norm();
    bytes.append(reinterpret_cast<const char*>(&norm), sizeof(norm));
    for (int unit = 0; unit < table.num_units(); ++unit) {
      if (!table.unit(unit).trainable) continue;
      const auto mine = state.gradients().shard(unit);
      const auto extent = static_cast<std::size_t>(training.engine().master().layout().shard(unit).extent);
      const std::string text(reinterpret_cast<const char*>(mine.data()), extent * sizeof(float));
      std::string all;
      for (const auto& part : distributed::gather_text(training.engine().master().comm(), text)) all += part;
      bytes += tests::without_pads(table, unit, all, true);
    }
  });
  return bytes;
}

/// The results that are compared at the end of a run.
struct End {
  Bits evaluation;
  std::string weights, sums;
  std::optional<io::LossScale> loss_scale;
};

End end_of(TinyTraining& training, const TinyRun& run) {
  const double loss = train::evaluate(training.engine(), training.source(), 0).loss;
  End end{.evaluation = {std::bit_cast<std::uint64_t>(loss)},
          .weights = training.all_weights(),
          .sums = {},
          .loss_scale = training.engine().loss_scaler().state()};
  end.sums = sums_of_addends(training, run);
  return end;
}

/// The results of an uninterrupted run on one rank.
struct Reference {
  Bits steps;
  End end;
};

Reference reference_of(const TinyRun& run) {
  Reference reference;
  tests::on_first_ranks(1, "self", [&](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training(run, comm, ledger);
    add_bits(reference.steps, training.result());
    reference.end = end_of(training, run);
  });
  return reference;
}

/// Continues from the folder `from` ("": from the beginning) to the leg's last step, and saves in `run_folder`. Rank 0,
/// which has the reference, compares.
void take_leg(TinyRun run, const Leg& leg, std::int64_t first, const std::string& from, const std::string& run_folder,
              const Reference& reference, const distributed::Mesh& mesh, const distributed::Ranks& ranks) {
  distributed::Communicator& comm = mesh.all();
  run.stage = leg.stage;
  run.overlap = leg.overlap;
  run.prefetch_units = leg.prefetch_units;
  run.recompute = leg.recompute;
  run.model.blocks_in_unit = leg.blocks_in_unit;
  run.offload = leg.offload;
  run.staged = leg.staged;
  if (!from.empty()) run.loss_scaler.restore(io::read_manifest(from).record.loss_scale);
  MemoryLedger ledger;
  TinyTraining training(run, mesh, ledger);
  if (!from.empty()) CHECK(train::load_state(from + "/state.h5", training.engine(), comm).empty());
  Bits steps;
  add_bits(steps, training.result_of_steps(first, leg.last));
  if (leg.last == run.steps) {
    const End end = end_of(training, run);
    if (comm.rank() == 0) {
      CHECK((end.weights == reference.end.weights));  // double parentheses: Catch2 does not print the bytes
      CHECK(end.evaluation == reference.end.evaluation);
      CHECK((end.sums == reference.end.sums));
      CHECK(end.loss_scale == reference.end.loss_scale);
    }
  } else {
    train::CheckpointSaver saver(training.engine(), training.engine().staging(),
                                 distributed::make_control_communicator(ranks, 60.0));
    const io::CheckpointRecord record{.step = leg.last,
                                      .tokens = 1,
                                      .model = "{}",
                                      .tokenizer = "none",
                                      .loss_scale = training.engine().loss_scaler().state()};
    saver.begin({std::make_shared<io::HeldFolder>(run_folder, nullptr), record, {}, 0});
    add_bits(steps, training.result_of_steps(leg.last + 1, leg.last + 1));  // during the save if it is staged
    const auto report = saver.wait();
    REQUIRE(report);
    REQUIRE(!report->problem);
  }
  if (comm.rank() > 0) return;
  const auto from_step = reference.steps.begin() + 2 * (first - 1);
  CHECK(steps == Bits(from_step, from_step + std::ssize(steps)));
}

void check_deck(std::uint64_t number, const std::string& folder) {
  const RandomDeck deck = random_deck(number);
  INFO("deck " << number << ": " << described(deck));
  const Reference reference = reference_of(deck.run);
  const std::string run_folder = folder + "/" + std::to_string(number);
  std::string from;
  std::int64_t first = 1;
  for (const Leg& leg : deck.legs) {
    const auto take = [&](distributed::MeshCommunicators& mesh, const distributed::Ranks& ranks) {
      take_leg(deck.run, leg, first, from, run_folder, reference, mesh.mesh(), ranks);
    };
    tests::on_first_mesh(leg.ranks, leg.ranks_per_group, leg.ranks_per_node > 0 ? "mpi" : leg.backend, take,
                         {.ranks_per_node = leg.ranks_per_node});
    from = io::checkpoint_folder(run_folder, leg.last);
    first = leg.last + 1;
  }
}

}  // namespace

TEST_CASE("random decks on changing ranks, stages and back ends have the bits of one rank that never stopped") {
  const char* const asked = std::getenv("KOZERO_DECKS");
  const std::uint64_t decks = asked == nullptr ? 24 : std::strtoull(asked, nullptr, 10);
  const tests::SharedFolder folder;
  for (std::uint64_t number = 0; number < decks; ++number) check_deck(number, folder.path());
}
