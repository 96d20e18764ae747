// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checkpoint.cpp: host copies of shards, the tensors of a checkpoint, and the thread that saves.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/core/host.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/wait_clock.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/run_files.hpp>
#include <kozero/train/runtime.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/weights_file.hpp"
#include "io/deck/schema.hpp"
#include "io/posix/system_resources.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/matmul/product_tuning.hpp"

namespace kozero::train {

HostRanges::HostRanges(std::vector<DeviceRange> ranges) : device_(std::move(ranges)) {
  for (const auto& range : device_) host_.push_back(Kokkos::create_mirror_view(Kokkos::HostSpace(), range.values));
}

void HostRanges::fetch() {
  for (std::size_t i = 0; i < host_.size(); ++i) Kokkos::deep_copy(host_[i], device_[i].values);
}

void HostRanges::store() {
  for (std::size_t i = 0; i < host_.size(); ++i) Kokkos::deep_copy(device_[i].values, host_[i]);
}

namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // elements that one thread copies at a time

/// Calls `visit(shard, first element of its copy)` for all shards in order.
template <class Visit>
void for_each_shard(const std::vector<StateGroup>& groups, const Visit& visit) {
  std::int64_t first = 0;
  for (const auto& group : groups) {
    for (const auto& shard : group.shards) {
      visit(shard, first);
      first += static_cast<std::int64_t>(shard.values.extent(0));
    }
  }
}

/// Calls `body(first, count)` for blocks of [0, extent) on the host's threads; a block always runs on the same thread.
template <class Body>
void for_each_block(const char* label, std::int64_t extent, const Body& body) {
  const std::int64_t num_blocks = (extent + kBlock - 1) / kBlock;
  using Policy = Kokkos::RangePolicy<Host, Kokkos::Schedule<Kokkos::Static>, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for(label, Policy(0, num_blocks),
                       [=](const std::int64_t b) { body(b * kBlock, std::min(kBlock, extent - b * kBlock)); });
}

void copy(float* to, const Vector<float>& from) {
  if constexpr (kHostIsDevice) {
    const float* source = from.data();
    for_each_block("kozero::train::capture", static_cast<std::int64_t>(from.extent(0)),
                   [=](std::int64_t first, std::int64_t count) {
                     stream_copy(to + first, source + first, count * static_cast<std::int64_t>(sizeof(float)));
                   });
  } else {
    Kokkos::deep_copy(HostVector<float>(to, from.extent(0)), from);
  }
}

[[noreturn]] void refuse(std::int64_t limit_mib, std::int64_t bytes) {
  throw Error(Failure::deck,
              "checkpoint.staging_mib = " + std::to_string(limit_mib) + ": a rank's share of the state needs " +
                  std::to_string((bytes + kMiB - 1) / kMiB) +
                  " MiB; accepted are that and more, or 0 for what it needs; " +
                  "checkpoint.async = false and more ranks need less",
              Error::Seen::by_all_ranks);
}

std::string group_of(const optim::NamedState& state) { return "optimizer/" + state.name; }

/// All ranges of a state that this rank holds.
std::vector<DeviceRange> held(const optim::NamedState& state, const std::vector<UnitRange>& ranges) {
  std::vector<DeviceRange> values;
  for (const UnitRange& range : ranges) {
    values.push_back({range.unit, range.begin, slice(state.values, range.first, range.extent)});
  }
  return values;
}

/// The ranges of a state that this rank writes: of a whole unit, its shard, so that every element has one writer.
std::vector<DeviceRange> owned(const optim::NamedState& state, const std::vector<UnitRange>& updates,
                               const std::vector<UnitRange>& shards) {
  std::vector<DeviceRange> values;
  for (const auto& whole : held(state, updates)) {
    const auto mine = std::ranges::lower_bound(shards, whole.unit, {}, &UnitRange::unit);
    if (mine == shards.end() || mine->unit != whole.unit) continue;
    values.push_back({mine->unit, mine->begin, slice(whole.values, mine->begin - whole.begin, mine->extent)});
  }
  return values;
}

std::string library_of_products() { return kernels::product_library() + ", " + tuning_of_this_device().device; }

/// Texts "optim.lr is 5e-4 and was 2e-3" and what follows `was`, such as " at step 28".
class Changes {
 public:
  explicit Changes(std::string after_was = "") : after_was_(std::move(after_was)) {}

  void compare(const std::string& what, const std::string& was, const std::string& now,
               const std::string& consequence = "") {
    if (was != now) add(fmt::format("{} is {} and was {}{}{}", what, now, was, after_was_, consequence));
  }
  void add(std::string text) { texts_.push_back(std::move(text)); }
  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::string after_was_;
  std::vector<std::string> texts_;
};

/// The learning rates that a deck gives a run with this record.
optim::ScheduleConfig rates_of(const io::Deck& deck, const io::CheckpointRecord& record) {
  const io::TrainKeys& keys = deck.train;
  const std::int64_t base =
      keys.accumulate > 0 ? keys.base_ranks * keys.micro_batch * keys.accumulate : keys.global_batch;
  return schedule_of(deck, optim::scaled_rate(keys.batch_scaling, 1.0, record.global_batch, base),
                     total_steps(deck, record.num_samples, record.global_batch));
}

/// The run's length, if the rates of later steps depend on it.
void compare_length(Changes& changes, const optim::ScheduleConfig& was, const optim::ScheduleConfig& now,
                    std::int64_t step) {
  const auto rates_differ = [&](std::int64_t at) { return learning_rate(was, at) != learning_rate(now, at); };
  const std::int64_t next = step + 1;
  const std::int64_t last = std::max({was.total_steps, now.total_steps, next});
  if (!rates_differ(next) && !rates_differ(last) && !rates_differ(next + (last - next) / 2)) return;
  const double before = learning_rate(was, step);
  const double after = learning_rate(now, next);
  const bool rises = learning_rate(was, next) <= before && after > before;
  changes.compare(
      "run.steps", std::to_string(was.total_steps), std::to_string(now.total_steps),
      rises ? fmt::format(": the learning rate rises again, from {:.4g} to {:.4g} at step {}", before, after, next)
            : "");
}

std::string value_text(const io::Deck& deck, const io::DeckRow& row) {
  return row.default_text.empty() || !io::holds_default(deck, row) ? io::text_in(deck, row) : "not given";
}

/// The keys that change bits by themselves, by the schema.
void compare_decks(Changes& changes, const io::CheckpointRecord& saved, const io::CheckpointRecord& mine) {
  const io::Deck was = io::parse_deck(saved.deck, "the checkpoint's deck");
  const io::Deck now = io::parse_deck(mine.deck, "the run's deck");
  bool other_length = false;
  for (const auto& row : io::deck_schema()) {
    if (row.effect == io::Effect::bits) changes.compare(row.key, value_text(was, row), value_text(now, row));
    other_length = other_length || (row.effect == io::Effect::length && io::text_in(was, row) != io::text_in(now, row));
  }
  const bool has_lessons = !was.run.curriculum.empty() || !now.run.curriculum.empty();
  if (other_length && !has_lessons) compare_length(changes, rates_of(was, saved), rates_of(now, mine), saved.step);
}

std::string named_tuning(const std::string& hash) { return hash.empty() ? "none" : hash; }

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{100};  // longest polling interval of a wait

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Whether this rank's part failed before the ranks agreed, so that the other parts may wait for it. A failure of
/// communication ends every rank's part.
bool failed_here_alone(const SaveReport& report) {
  const auto& problem = report.problem;
  return problem && !problem->seen_by_all_ranks() && problem->failure() != Failure::communication;
}

}  // namespace

Staging::Staging(std::vector<StateGroup> groups, std::int64_t limit_mib, MemoryLedger& ledger)
    : groups_(std::move(groups)) {
  std::int64_t extent = 0;
  for_each_shard(groups_, [&](const DeviceRange& shard, std::int64_t) {
    require(shard.values.extent(0) % kAlignment == 0, "Staging: a shard is no multiple of 64 elements");
    extent += static_cast<std::int64_t>(shard.values.extent(0));
  });
  bytes_ = extent * static_cast<std::int64_t>(sizeof(float));
  if (limit_mib > 0 && bytes_ > limit_mib * kMiB) refuse(limit_mib, bytes_);
  ledger.book(Memory::staging, "checkpoint staging", bytes_);
  if (ledger.plans_only() || extent == 0) return;
  memory_ = decltype(memory_)(Kokkos::view_alloc("kozero::train::staging", Kokkos::WithoutInitializing),
                              static_cast<std::size_t>(extent));
  float* memory = memory_.data();
  for_each_block("kozero::train::first_touch", extent,
                 [=](std::int64_t first, std::int64_t count) { std::fill_n(memory + first, count, 0.0F); });
}

void Staging::capture() {
  Device().fence("kozero::train::capture");
  for_each_shard(groups_,
                 [&](const DeviceRange& shard, std::int64_t first) { copy(memory_.data() + first, shard.values); });
  Host().fence("kozero::train::capture");
}

std::vector<io::TensorGroup<const float>> Staging::groups() const {
  std::vector<io::TensorGroup<const float>> all;
  for (const auto& group : groups_) all.push_back({group.name, {}});
  std::int64_t first = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    for (const auto& shard : groups_[i].shards) {
      const auto extent = shard.values.extent(0);
      all[i].ranges.push_back({shard.unit, shard.begin, HostVector<const float>(memory_.data() + first, extent)});
      first += static_cast<std::int64_t>(extent);
    }
  }
  return all;
}

std::vector<StateGroup> owned_state(const Engine& engine) {
  const auto& master = engine.master();
  std::vector<StateGroup> groups = {{io::kParameterGroup, owned_shards(engine)}};
  for (const auto& state : engine.optimizer_states()) {
    auto& shards = groups.emplace_back(StateGroup{group_of(state), {}}).shards;
    if (master.mesh().is_first_group()) shards = owned(state, engine.update_ranges(), master.layout().shards());
  }
  return groups;
}

io::Ties ties_of(const Evaluator& evaluator) {
  return evaluator.config().tie_embeddings ? io::tied_head(evaluator.parameters()) : io::Ties();
}

io::CheckpointContents contents_of(const Engine& engine, const io::CheckpointRecord& record,
                                   const std::map<std::string, std::string>& texts, std::vector<HostRanges>& shards) {
  io::CheckpointContents contents{record, {}, texts, ties_of(engine), engine.disk_watch()};
  for (const auto& group : owned_state(engine)) {
    shards.emplace_back(group.shards).fetch();
    contents.groups.push_back({group.name, shards.back().named<const float>()});
  }
  return contents;
}

std::int64_t save_checkpoint(const std::string& folder, Engine& engine, const io::CheckpointRecord& record,
                             const std::map<std::string, std::string>& texts) {
  std::vector<HostRanges> shards;
  const auto contents = contents_of(engine, record, texts, shards);
  return io::write_checkpoint(engine.comm(), folder, engine.parameters(), contents);
}

io::AbsentState load_state(const std::string& file, Engine& engine, distributed::Communicator& control) {
  std::vector<HostRanges> ranges = {HostRanges(shards_of(engine))};
  std::vector<io::TensorGroup<float>> groups = {{io::kParameterGroup, ranges[0].named<float>()}};
  for (const auto& state : engine.optimizer_states()) {
    ranges.emplace_back(held(state, engine.update_ranges()));
    groups.push_back({group_of(state), ranges.back().named<float>()});
  }
  const auto absent = io::read_tensor_file(control, file, engine.parameters(), groups);
  for (std::size_t i = 0; i < (absent.groups.empty() ? ranges.size() : 1); ++i) ranges[i].store();
  engine.publish();
  return absent;
}

std::string identity_of(const io::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return "none";
  std::string bytes;
  for (Token id = 0; id < tokenizer->vocab_size(); ++id) {
    const std::string token = tokenizer->decode(std::vector<Token>{id});
    bytes += std::to_string(token.size()) + ":" + token;
  }
  return fmt::format("{} {}", tokenizer->name(), io::xxh3_128(bytes));
}

std::map<std::string, std::string> exactness_of(const Settings& settings, const distributed::Communicator& comm) {
  const bool local = settings.zero.accumulation == zero::Accumulation::local;
  std::map<std::string, std::string> all = {{"train.micro_batch", std::to_string(settings.batch.micro_batch)},
                                            {"train.precision", name_of(settings.precision)},
                                            {kVocabBlock, std::to_string(settings.model.vocab_block)},
                                            {kArithmetic, "2"},
                                            {kAccumulation, zero::name_of(settings.zero.accumulation)},
                                            {kOrderOfSums, comm.adds_in_order() ? kRankOrder : comm.name()},
                                            {"products", with_stored_type(settings.precision, [](auto type) {
                                               return kernels::bits_of_products<decltype(type)>();
                                             })}};
  if (!kHostIsDevice) all["the library of products"] = library_of_products();
  if (local || !comm.adds_in_order()) all["the number of ranks"] = std::to_string(comm.size());
  if (!comm.adds_in_order()) all["zero.shard_group, in ranks"] = std::to_string(settings.ranks_per_group);
  return all;
}

io::CheckpointRecord record_of(const io::Deck& deck, const Settings& settings, const data::DataSet& data,
                               const std::string& folder) {
  return {.optimizer_start = settings.step.optimizer_start,
          .seed = settings.seed,
          .global_batch = settings.batch.global_batch,
          .num_samples = data.train->num_samples(),
          .steps_before = settings.samples.steps_before,
          .corpus = data.corpus,
          .model = model_json(settings.model),
          .tokenizer = identity_of(data.tokenizer.get()),
          .deck = io::resolved_text(resolved_deck(deck, settings, folder)),
          .loss_scale = settings.step.loss_scaler.state()};
}

bool is_of_other_lesson(const io::CheckpointRecord& saved, const io::CheckpointRecord& mine) {
  return saved.steps_before != mine.steps_before;
}

std::vector<std::string> changes_since(const io::CheckpointRecord& saved, const io::CheckpointRecord& mine) {
  Changes changes(fmt::format(" at step {}", saved.step));
  if (!saved.deck.empty()) {
    try {
      compare_decks(changes, saved, mine);
    } catch (const Error& problem) {
      changes.add(std::string("keys are not compared with the checkpoint's: ") + problem.what());
    }
  }
  auto before = saved.exactness;
  before.emplace(kVocabBlock, "0");  // checkpoints older than vocabulary blocks
  before.emplace(kArithmetic, "1");  // checkpoints of programs whose bits depended on the processor
  for (const auto& [name, was] : before) {
    const auto now = mine.exactness.find(name);
    if (now == mine.exactness.end() || (name == "train.micro_batch" && is_of_other_lesson(saved, mine))) continue;
    changes.compare(name, was, now->second);
  }
  changes.compare("the hash of run.tuning's file", named_tuning(saved.tuning), named_tuning(mine.tuning));
  if (!is_of_other_lesson(saved, mine)) {
    changes.compare("the data's number of samples", std::to_string(saved.num_samples),
                    std::to_string(mine.num_samples));
  }
  return changes.texts();
}

std::vector<std::string> disagreements(const io::CheckpointRecord& saved, const io::CheckpointRecord& mine) {
  Changes differences;
  const auto model_then = nlohmann::ordered_json::parse(saved.model);
  const auto model_now = nlohmann::ordered_json::parse(mine.model);
  const auto text_in = [](const auto& model, const std::string& key) {
    return model.contains(key) ? model[key].dump() : std::string("not given");
  };
  for (const auto& [key, value] : model_now.items()) {
    differences.compare("model." + key, text_in(model_then, key), value.dump());
  }
  for (const auto& [key, value] : model_then.items()) {
    if (!model_now.contains(key)) differences.compare("model." + key, value.dump(), text_in(model_now, key));
  }
  differences.compare("the tokenizer", saved.tokenizer, mine.tokenizer);
  if (!is_of_other_lesson(saved, mine)) {
    differences.compare("the global batch", std::to_string(saved.global_batch), std::to_string(mine.global_batch));
  }
  return differences.texts();
}

CheckpointSaver::CheckpointSaver(Engine& engine, Staging* staging, std::unique_ptr<distributed::Communicator> comm)
    : engine_(engine), staging_(staging), comm_(std::move(comm)) {}

void CheckpointSaver::begin(const SaveOrder& order) {
  require(!under_way(), "CheckpointSaver: a save is under way");
  const auto start = Clock::now();
  step_ = order.record.step;
  if (staging_ == nullptr) {
    std::vector<HostRanges> shards;
    SaveReport report = write(order, contents_of(engine_, order.record, order.texts, shards));
    report.seconds = report.stall_s = seconds_since(start);
    std::promise<SaveReport> done;
    done.set_value(std::move(report));
    report_ = done.get_future();
    return;
  }
  staging_->capture();
  io::CheckpointContents contents{order.record, staging_->groups(), order.texts, ties_of(engine_)};
  const double stall_s = seconds_since(start);
  report_ = std::async(std::launch::async, [this, order, contents = std::move(contents), start, stall_s] {
    run_on_any_cpu();
    SaveReport report = write(order, contents);
    report.seconds = seconds_since(start);
    report.stall_s = stall_s;
    return report;
  });
}

SaveReport CheckpointSaver::write(const SaveOrder& order, const io::CheckpointContents& contents) const {
  const EventScope event({.of_saver = staging_ != nullptr, .name = "writing a checkpoint"});
  const io::HeldFolder& run = *order.run_folder;
  const std::string folder = io::checkpoint_folder(run.path(), order.record.step);
  SaveReport report{.step = order.record.step, .folder = io::checkpoint_folder(run.folder(), order.record.step)};
  try {
    report.bytes = io::write_checkpoint(*comm_, folder, engine_.parameters(), contents, [&] { run.require(); });
    distributed::agreed(*comm_, [&] {
      if (comm_->rank() != 0) return;
      run.require();
      const auto best = order.keep_best ? io::best_checkpoint(run.path()) : std::nullopt;
      report.is_best = best && best->folder == folder;
      io::prune_checkpoints(run.path(), order.keep, best ? best->folder : "");
    });
  } catch (const Error& problem) {
    report.problem = run.in_words(problem);
  } catch (const std::bad_alloc&) {
    report.problem = Error(Failure::internal, io::memory_exhausted());
  } catch (const std::exception& problem) {
    report.problem = Error(Failure::internal, problem.what());
  }
  return report;
}

std::optional<SaveReport> CheckpointSaver::ended(distributed::Communicator& comm) {
  if (!under_way()) return std::nullopt;
  const bool busy = report_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  if (!busy && failed_here_alone(report_.get())) return std::exchange(report_, {}).get();
  const bool writes = busy && !distributed::is_waiting(distributed::Role::saver);
  struct Report {
    bool busy;
    bool writes;
  };
  const std::vector<Report> all = distributed::from_all_ranks(comm, Report{busy, writes});
  bool any_busy = false;
  slow_ranks_.clear();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    any_busy = any_busy || all[rank].busy;
    if (all[rank].writes) slow_ranks_ += (slow_ranks_.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  if (any_busy) return std::nullopt;
  return std::exchange(report_, {}).get();
}

std::optional<SaveReport> CheckpointSaver::wait(distributed::Communicator& comm, double longest_s) {
  if (!under_way()) return std::nullopt;
  distributed::WaitClock clock;
  while (report_.wait_for(kLook) != std::future_status::ready && clock.look(longest_s) < longest_s) {
    distributed::require_live_ranks("a save", clock.look(longest_s));
  }
  return ended(comm);
}

std::optional<SaveReport> CheckpointSaver::wait() {
  if (!under_way()) return std::nullopt;
  return std::exchange(report_, {}).get();
}

}  // namespace kozero::train
