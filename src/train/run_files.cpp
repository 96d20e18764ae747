// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_files.cpp: reads and writes the weights file, finds a run's files, and finds the checkpoint to resume from.
#include <fmt/format.h>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/train/adapter_base.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/run_files.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/weights_file.hpp"
#include "io/posix/file.hpp"
#include "io/run/run_folder.hpp"

namespace kozero::train {

namespace fs = std::filesystem;

namespace {

/// The folder of `path`, "." for a bare file name.
fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

bool holds(const fs::path& folder, const char* file) { return io::is_there((folder / file).string()); }

bool is_checkpoint(const fs::path& folder) { return holds(folder, io::kManifestFile); }

/// The last of DIR, DIR-2, DIR-3 ... (numbered by create_run_folder) that holds weights; DIR if none does.
fs::path newest_run(const std::string& run_dir) {
  const std::string dir = io::without_trailing_slash(run_dir);
  fs::path newest = dir;
  fs::path folder = dir;
  for (int number = 2; io::is_there(folder.string()); ++number) {
    if (holds(folder, kWeightsFile) || !newest_checkpoint(folder.string()).empty()) newest = folder;
    folder = dir + "-" + std::to_string(number);
  }
  return newest;
}

/// The path of a run's latest weights; the path of no file if it has none.
fs::path latest_in(const fs::path& folder) {
  const fs::path plain = folder / kWeightsFile;
  const std::string checkpoint = newest_checkpoint(folder.string());
  if (checkpoint.empty()) return plain;
  const bool is_later = !holds(folder, kWeightsFile) || io::read_saved_state(checkpoint).manifest.record.step >
                                                            io::read_saved_state(plain.string()).manifest.record.step;
  return is_later ? fs::path(checkpoint) / io::kStateFile : plain;
}

/// The state of a run's best checkpoint.
fs::path best_in(const fs::path& folder) {
  const auto best = io::best_checkpoint(folder.string());
  if (best) return fs::path(best->folder) / io::kStateFile;
  throw Error(Failure::deck, folder.string() +
                                 ": no checkpoint in it has a validation loss; with "
                                 "checkpoint.keep_best = true each save measures it and the best one is kept");
}

/// The first of these files that exists, or "".
std::string first_of(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (holds(folder, name)) return (folder / name).string();
  }
  return "";
}

fs::path weights_of(const NamedPath& named, const std::string& given, Which which) {
  const bool is_run = named.kind == NamedPath::Kind::run;
  if (which == Which::best && !is_run) {
    throw Error(Failure::deck, given + ": --best chooses among a run's checkpoints; give the run's folder or its deck");
  }
  if (is_run) return which == Which::best ? best_in(named.path) : latest_in(named.path);
  return named.kind == NamedPath::Kind::checkpoint ? fs::path(named.path) / io::kStateFile : fs::path(named.path);
}

using Kind = NamedPath::Kind;

/// Says what is at a path that names no weights.
[[noreturn]] void refuse_path(const NamedPath& named, const std::string& given, const std::string& weights) {
  constexpr const char* kPeftConfig = "adapter_config.json";
  constexpr const char* kAccepted =
      "; give a run's folder, a weights file, a checkpoint, a Hugging Face folder (with config.json), or a deck that "
      "was trained";
  if (named.kind == Kind::nothing) throw Error(Failure::deck, given + ": nothing is there" + kAccepted);
  if (holds(named.path, kPeftConfig)) {
    throw Error(Failure::deck, given +
                                   ": it holds PEFT's adapters, which need their base: give that, and the adapters by "
                                   "--adapter, or by model.lora.init for training");
  }
  throw Error(Failure::deck, given + ": no trained weights at " + weights + kAccepted);
}

/// Resolved by rank 0 and broadcast.
NamedPath named_for_resume(const std::string& given, distributed::Communicator& comm) {
  NamedPath named = distributed::agreed(comm, [&] {
    if (comm.rank() != 0) return NamedPath();
    NamedPath mine = named_path(given);
    if (mine.kind == Kind::nothing || mine.kind == Kind::hugging_face) {
      throw Error(Failure::deck,
                  "checkpoint.resume = \"" + given + "\": " +
                      (mine.kind == Kind::nothing ? "nothing is there"
                                                  : "a Hugging Face folder, from which model.init begins") +
                      "; accepted are none, auto, the path of a checkpoint, of a run's folder or of a "
                      "weights file");
    }
    return mine;
  });
  return {distributed::broadcast_value(comm, named.kind), comm.broadcast_control(named.path)};
}

/// A weights file has only step, tokens and model; all other fields keep this run's values.
void use(ResumePoint& point, const io::SavedState& saved) {
  const io::CheckpointRecord& record = saved.manifest.record;
  if (!nlohmann::json::accept(record.model)) {
    throw Error(Failure::input, saved.path + ": its description is no JSON", Error::Seen::by_all_ranks);
  }
  point.source = saved.path;
  point.state_file = saved.state_file();
  if (saved.is_checkpoint) {
    point.record = record;
    return;
  }
  point.record.step = record.step;
  point.record.tokens = record.tokens;
  point.record.model = record.model;
}

void use_newest(ResumePoint& point, const std::string& run_folder, distributed::Communicator& comm) {
  const auto found = io::newest_complete(comm, run_folder, point.skipped);
  if (found) use(point, {found->folder, true, found->manifest});
}

void use_path(ResumePoint& point, const std::string& given, const std::string& run_dir,
              distributed::Communicator& comm) {
  const auto [kind, path] = named_for_resume(given, comm);
  if (kind == Kind::weights_file || kind == Kind::checkpoint) use(point, io::verify(comm, path));
  if (kind == Kind::run) use_newest(point, path, comm);
  if (point.source.empty()) {
    throw Error(Failure::input,
                path + ": no complete checkpoint" + (point.skipped.empty() ? "" : "; " + point.skipped.front()),
                Error::Seen::by_all_ranks);
  }
  const fs::path folder = (fs::path(path) / "").parent_path();
  const fs::path run = kind == Kind::run ? folder : fs::absolute(folder).parent_path();
  if (same_folder(run.string(), run_dir)) point.folder = run_dir;
}

/// A run that stopped before its first checkpoint restarts in its own folder; a finished run's folder is left alone.
bool may_begin_anew(const std::string& folder) {
  return io::is_there(folder + "/" + kDeckFile) && !io::is_there(folder + "/" + kWeightsFile);
}

/// A run whose checkpoints are all broken does not restart, since that would overwrite data that may be recoverable.
void refuse_all_broken(const std::string& run_dir, const std::vector<std::string>& reasons) {
  const std::string more = reasons.size() > 1 ? fmt::format(" (and {} more)", reasons.size() - 1) : "";
  throw Error(
      Failure::input,
      fmt::format("checkpoint.resume = \"auto\": none of the {} checkpoints in {} is whole, nothing was changed: "
                  "{}{}; bring one back, name another by checkpoint.resume=PATH, or begin anew in another folder "
                  "by checkpoint.resume=none",
                  reasons.size(), run_dir, reasons.front(), more),
      Error::Seen::by_all_ranks);
}

/// What to do about another global batch: the samples of a step follow from it, so a run keeps it.
std::string way_out(const ResumePoint& point, const io::CheckpointRecord& mine) {
  if (point.record.global_batch == mine.global_batch) return "";
  return fmt::format(
      "; train.global_batch={} goes on; model.init={} checkpoint.resume=none begins a new run from these "
      "weights, with a fresh optimizer, at any batch",
      point.record.global_batch, point.source);
}

void refuse_disagreement(const ResumePoint& point, const io::CheckpointRecord& mine, std::int64_t steps) {
  std::string differences;
  for (const auto& difference : disagreements(point.record, mine)) {
    differences += (differences.empty() ? "" : "; ") + difference;
  }
  if (!differences.empty()) {
    throw Error(Failure::deck, point.source + ": the deck disagrees with it: " + differences + way_out(point, mine),
                Error::Seen::by_all_ranks);
  }
  if (steps > 0 && point.record.step > steps) {
    throw Error(
        Failure::deck,
        fmt::format("run.steps = {}: {} is of step {}; give at least that", steps, point.source, point.record.step),
        Error::Seen::by_all_ranks);
  }
}

}  // namespace

std::vector<DeviceRange> shards_of(const Evaluator& evaluator) {
  const auto& master = evaluator.master();
  std::vector<DeviceRange> shards;
  for (const auto& range : master.layout().shards()) {
    if (evaluator.parameters().unit(range.unit).is_base) continue;
    shards.push_back({range.unit, range.begin, master.shard(range.unit)});
  }
  return shards;
}

std::vector<DeviceRange> owned_shards(const Evaluator& evaluator) {
  return evaluator.master().mesh().is_first_group() ? shards_of(evaluator) : std::vector<DeviceRange>();
}

void save_weights(const io::HeldFolder& folder, const Evaluator& evaluator, distributed::Communicator& comm,
                  const io::WeightsDescription& description) {
  HostRanges shards(owned_shards(evaluator));
  shards.fetch();
  try {
    io::write_weights(
        comm, folder.path() + "/" + kWeightsFile, evaluator.parameters(), shards.named<const float>(), description,
        [&] { folder.require(); }, evaluator.disk_watch());
  } catch (const Error& problem) {
    throw folder.in_words(problem);
  }
}

io::WeightsDescription load_weights(const std::string& path, Evaluator& evaluator, distributed::Communicator& comm) {
  HostRanges shards(shards_of(evaluator));
  const auto description = io::read_weights(comm, path, evaluator.parameters(), shards.named<float>());
  shards.store();
  fill_without_master(
      evaluator,
      [&](const io::RangeValues<float>& piece) { io::read_weights(comm, path, evaluator.parameters(), {piece}); },
      Pieces::equal);
  evaluator.publish();
  return description;
}

NamedPath named_path(const std::string& given) {
  using Kind = NamedPath::Kind;
  const std::string path = io::without_trailing_slash(given);
  if (fs::path(path).filename() == io::kStateFile && io::is_there(path)) {
    return {Kind::checkpoint, folder_of(path).string()};
  }
  if (fs::path(path).extension() == ".toml" && !io::is_folder(path)) {
    const bool beside_weights = holds(folder_of(path), kWeightsFile);
    return {Kind::run, beside_weights ? folder_of(path).string() : newest_run(io::read_deck(path).run.dir).string()};
  }
  if (!io::is_there(path)) return {Kind::nothing, path};
  if (!io::is_folder(path)) return {Kind::weights_file, path};
  if (is_checkpoint(path)) return {Kind::checkpoint, path};
  return {io::is_hugging_face_folder(path) ? Kind::hugging_face : Kind::run, path};
}

std::string newest_checkpoint(const std::string& run_folder) {
  for (const auto& folder : io::checkpoints_in(run_folder)) {
    if (is_checkpoint(folder)) return folder;
  }
  return "";
}

RunFiles find_run(const std::string& path, Which which) {
  const NamedPath named = named_path(path);
  const fs::path weights = weights_of(named, path, which);
  if (!io::is_there(weights.string())) refuse_path(named, path, weights.string());
  const fs::path folder = folder_of(weights);
  std::string tokenizer;
  if (named.kind == NamedPath::Kind::run) tokenizer = first_of(named.path, {kTokenizerFile, kTokenizerModelFile});
  if (tokenizer.empty()) tokenizer = first_of(folder, {kTokenizerFile, kTokenizerModelFile});
  return {folder.string(), weights.string(), first_of(folder, {kDeckFile}), tokenizer};
}

std::string checkpoints_of(const std::string& path) noexcept {
  try {
    const NamedPath named = named_path(path);
    std::string names;
    if (named.kind != NamedPath::Kind::run) return names;
    for (const auto& folder : io::checkpoints_in(named.path)) names += folder + '\n';
    return names;
  } catch (const std::exception&) {
    return "";
  }
}

void require_removed(distributed::Communicator& comm, const std::string& path, const std::string& read, int attempt,
                     const Error& problem) {
  if (!problem.seen_by_all_ranks() && comm.size() > 1) throw problem;
  std::error_code unknown;
  const bool gone = comm.rank() == 0 && !fs::exists(read, unknown) && !unknown;
  if (!distributed::broadcast_value(comm, gone && !path.starts_with(read))) throw problem;
  if (attempt < io::kMostReads) return;
  throw Error(Failure::input,
              fmt::format("{}: {} checkpoints in turn were removed while they were read; its trainer saves and removes "
                          "them faster than that: raise its checkpoint.keep, or read a copy",
                          path, attempt),
              Error::Seen::by_all_ranks);
}

bool same_folder(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

ResumePoint find_resume_point(const io::Deck& deck, const io::CheckpointRecord& mine, distributed::Communicator& comm) {
  ResumePoint point;
  point.record = mine;
  const std::string& resume = deck.checkpoint.resume;
  if (resume == "none") return point;
  const std::string run_dir = io::without_trailing_slash(deck.run.dir);
  if (resume == "auto") {
    use_newest(point, run_dir, comm);
    if (point.source.empty() && !point.skipped.empty()) refuse_all_broken(run_dir, point.skipped);
    point.folder = distributed::from_first_rank(
        comm, [&] { return !point.source.empty() || may_begin_anew(run_dir) ? run_dir : std::string(); });
  } else {
    use_path(point, resume, run_dir, comm);
    point.folder = comm.broadcast_control(point.folder);
  }
  if (!point.source.empty()) refuse_disagreement(point, mine, deck.run.steps);
  return point;
}

io::CheckpointRecord recorded_position(const io::Deck& deck) noexcept {
  try {
    if (deck.checkpoint.resume == "none") return {};
    const bool is_auto = deck.checkpoint.resume == "auto";
    const NamedPath named = named_path(is_auto ? deck.run.dir : deck.checkpoint.resume);
    const std::string checkpoint = named.kind == Kind::run ? newest_checkpoint(named.path) : named.path;
    return io::read_saved_state(checkpoint).manifest.record;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace kozero::train
