// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tiny_run.hpp: a few training steps of a tiny model on given ranks, for tests that compare whole runs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/core/random.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/train/adapter_base.hpp>
#include <kozero/train/settings.hpp>
#include <support/models.hpp>
#include "src/train/trainer.hpp"

namespace kozero::tests {

/// Windows of tokens that are a function of (seed, sample, position). Documents begin with token 0.
class NoiseSamples final : public data::SampleSource {
 public:
  /// `in_documents`: about a quarter of all tokens begin a document. `ignores`: sample s ignores s % 4 first targets.
  NoiseSamples(std::int64_t num_samples, std::int64_t vocab, std::int64_t tail = 0, bool in_documents = false,
               bool ignores = false)
      : num_samples_(num_samples), vocab_(vocab), tail_(tail), in_documents_(in_documents), ignores_(ignores) {}
  [[nodiscard]] std::int64_t num_samples() const override { return num_samples_; }
  [[nodiscard]] std::int64_t tail() const override { return tail_; }
  void read(std::int64_t index, std::span<Token> window) const override {
    for (std::size_t t = 0; t < window.size(); ++t) {
      const auto words = philox(7, counter_of(t, static_cast<std::uint64_t>(index)));
      const bool begins = in_documents_ && words.x[1] % 4 == 0;
      window[t] = begins ? document_start() : static_cast<Token>(words.x[0] % static_cast<std::uint32_t>(vocab_));
    }
  }
  void change_targets(std::int64_t index, std::span<Token> targets) const override {
    std::fill_n(targets.begin(), ignored_targets(index), kIgnoredTarget);
  }
  [[nodiscard]] std::int64_t ignored_targets(std::int64_t index) const override { return ignores_ ? index % 4 : 0; }
  [[nodiscard]] Token document_start() const override { return 0; }

 private:
  std::int64_t num_samples_;
  std::int64_t vocab_;
  std::int64_t tail_;
  bool in_documents_;
  bool ignores_;
};

inline model::Config tiny_gpt2() {
  return {.arch = "gpt2", .layers = 2, .dim = 26, .heads = 2, .vocab = 37, .seq = 7, .dropout = 0.1F, .seed = 5};
}
inline model::Config tiny_llama() {
  return {.arch = "llama",
          .layers = 2,
          .dim = 24,
          .heads = 4,
          .kv_heads = 2,
          .ffn = 40,
          .vocab = 37,
          .seq = 7,
          .tie_embeddings = false,
          .seed = 5};
}

inline model::Config tiny_qwen2() {
  model::Config config = tiny_llama();
  config.arch = "qwen2";
  return config;
}
/// Wide heads, and RoPE scaling that changes angles within the window.
inline model::Config tiny_qwen3() {
  model::Config config = tiny_llama();
  config.arch = "qwen3";
  config.head_dim = 10;
  config.rope_scaling = {.factor = 4.0F, .original_seq = 20};
  return config;
}

using Kind = MemorySource::Kind;

/// Offloaded state: in files in the working directory, or in the host's memory as in a GPU run. An update goes through
/// `bytes` of memory, a few elements at a time. A GPU cannot access files: there both kinds are the host's memory.
inline train::Offload offloaded_to(Kind kind, bool parameters, std::int64_t bytes = std::int64_t{64} << 10) {
  if (!kHostIsDevice) kind = Kind::host;
  return {.optimizer = kind, .parameters = parameters ? kind : Kind::device, .folder = ".", .bytes = bytes};
}

struct TinyRun {
  model::Config model;
  Precision precision = Precision::f32;
  BaseType base = BaseType::as_weights;  ///< of adapters
  int stage = 0;
  zero::Accumulation accumulation = zero::Accumulation::ordered;
  int micro_steps = 1;           ///< with micro_batch 0: on the run's number of ranks
  std::int64_t micro_batch = 0;  ///< sequences of a granule
  std::int64_t global_batch = 5;
  std::int64_t num_samples = 12;
  std::vector<data::MixedSource> sources = {};  ///< of a mixture; num_samples is their sum
  bool masks_documents = false;
  bool ignores_targets = false;
  std::int64_t steps = 3;
  std::string optimizer = "adamw";
  double weight_decay = 0.1;
  double momentum = 0.9;
  double grad_clip = 1.0;
  train::OnNonFinite on_nonfinite = train::OnNonFinite::stop;
  train::LossScaler loss_scaler = {};
  std::int64_t max_skips = 10;
  std::int64_t check_every = 0;
  bool staged = false;  ///< saves are asynchronous
  bool overlap = true;
  int prefetch_units = 1;
  model::Recompute recompute = {};
  train::Offload offload = {};
  optim::ScheduleConfig schedule = {.kind = "constant", .lr = 1e-2};
};

struct TinyResult {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> weights;  ///< this rank's shards in unit order
  bool operator==(const TinyResult&) const = default;
};

/// The bytes of a unit's tensors (of_trained: of the trained ones), one after another, without the pads between them,
/// which depend on the division into units.
inline std::string without_pads(const ParameterTable& table, int unit, const std::string& floats,
                                bool of_trained = false) {
  std::string bytes;
  for (const auto& row : table.rows_of(unit)) {
    if (of_trained && !row.trainable) continue;
    const auto at = [](std::int64_t element) { return static_cast<std::size_t>(element) * sizeof(float); };
    bytes += floats.substr(at(row.offset), at(row.extent()));
  }
  return bytes;
}

/// A run, assembled as in the program.
class TinyTraining {
 public:
  TinyTraining(const TinyRun& run, const distributed::Mesh& mesh, MemoryLedger& ledger)
      : run_(run),
        engine_(train::make_engine(settings(run, mesh.all().size(), mesh.group().size()), mesh, ledger)),
        source_(run.num_samples, run.model.vocab, 0, run.masks_documents, run.ignores_targets),
        sampler_(run.sources.empty() ? data::Sampler(11, run.num_samples, run.global_batch)
                                     : data::Sampler(11, run.sources, run.global_batch)) {
    if (ledger.plans_only()) return;
    engine_->initialize(3);
    if (engine_->parameters().has_adapters()) train::initialize_base(3, *engine_);
    engine_->train_on(sampler_, source_, settings(run, mesh.all().size()).step);
  }

  /// `ranks_per_group` 0: all.
  static train::Settings settings(const TinyRun& run, int num_ranks, int ranks_per_group = 0) {
    train::Settings settings;
    settings.ranks_per_group = ranks_per_group > 0 ? ranks_per_group : num_ranks;
    settings.precision = run.precision;
    settings.masks_documents = run.masks_documents;
    settings.model = model::resolved(run.model);
    settings.recompute = run.recompute;
    settings.offload = run.offload;
    const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
    const std::int64_t micro_batch =
        run.micro_batch > 0 ? run.micro_batch : ceil_div(ceil_div(run.global_batch, num_ranks), run.micro_steps);
    const auto micro_steps = static_cast<int>(ceil_div(ceil_div(run.global_batch, micro_batch), num_ranks));
    settings.batch = {.global_batch = run.global_batch, .micro_batch = micro_batch, .micro_steps = micro_steps};
    settings.zero = {run.stage, run.accumulation, micro_steps, run.overlap, run.prefetch_units};
    settings.zero.base = run.base;
    settings.optim = {.kind = run.optimizer, .weight_decay = run.weight_decay, .momentum = run.momentum};
    settings.staged = run.staged;
    settings.step.seq = run.model.seq;
    settings.step.micro_steps = micro_steps;
    settings.step.grad_clip = run.grad_clip;
    settings.step.on_nonfinite = run.on_nonfinite;
    settings.step.loss_scaler = run.loss_scaler;
    settings.step.max_skips = run.max_skips;
    settings.step.check_every = run.check_every;
    settings.step.schedule = run.schedule;
    settings.step.schedule.total_steps = run.steps;
    return settings;
  }

  TinyResult result() { return result_of_steps(1, run_.steps); }

  /// Trains steps `first` to `last`.
  TinyResult result_of_steps(std::int64_t first, std::int64_t last) {
    TinyResult all;
    for (std::int64_t step = first; step <= last; ++step) {
      const auto one = engine_->step(step);
      all.losses.push_back(one.loss);
      all.norms.push_back(one.grad_norm);
    }
    all.weights = my_weights();
    return all;
  }

  [[nodiscard]] std::vector<float> my_weights() {
    std::vector<float> values;
    const auto& master = engine_->master();
    for (const auto& range : master.layout().shards()) {
      const auto mine = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), master.shard(range.unit));
      values.insert(values.end(), mine.data(), mine.data() + mine.extent(0));
    }
    return values;
  }

  /// The tensors of all units but the base's, one after another: the same bytes on any number of ranks and with any
  /// units. Collective.
  [[nodiscard]] std::string all_weights() {
    const auto& master = engine_->master();
    std::string bytes;
    for (int unit = 0; unit < master.num_units(); ++unit) {
      if (engine_->parameters().unit(unit).is_base) continue;
      const auto mine = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), master.shard(unit));
      const std::string text(reinterpret_cast<const char*>(mine.data()), mine.extent(0) * sizeof(float));
      std::string all;
      for (const auto& part : distributed::gather_text(master.comm(), text)) all += part;
      bytes += without_pads(engine_->parameters(), unit, all);
    }
    return bytes;
  }

  train::Engine& engine() { return *engine_; }
  const NoiseSamples& source() const { return source_; }
  /// Calls call(zero::ShardedState<Scalar>&), with the Scalar of the run's precision.
  template <class Call>
  void with_state(const Call& call) {
    with_stored_type(run_.precision,
                     [&](auto type) { call(dynamic_cast<train::Trainer<decltype(type)>&>(*engine_).state()); });
  }

 private:
  TinyRun run_;
  std::unique_ptr<train::Engine> engine_;
  NoiseSamples source_;
  data::Sampler sampler_;
};

inline TinyResult result_of(const TinyRun& run, const distributed::Mesh& mesh) {
  MemoryLedger ledger;
  return TinyTraining(run, mesh, ledger).result();
}

}  // namespace kozero::tests
