// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/checkpoint_folders.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/run_folder.hpp>
#include <kozero/io/seal.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/trained_weights.hpp>

#include "resume_point.hpp"

namespace kozero::commands {
namespace {

namespace fs = std::filesystem;

enum class Source { run, checkpoint, weights };

/// What the path is, as rank 0 sees it.
Source kind_of(const std::string& path, dist::Communicator& comm) {
  const auto mine = dist::agreed(comm, [&] {
    if (comm.rank() != 0) return Source::run;
    if (!io::is_there(path)) {
      throw Error(Failure::deck, "checkpoint.resume = \"" + path +
                                     "\": nothing is there; accepted are none, auto, "
                                     "the path of a checkpoint, of a run's folder or of a weights file");
    }
    if (!io::is_folder(path)) return Source::weights;
    return io::is_there(path + "/" + io::kManifestFile) ? Source::checkpoint : Source::run;
  });
  return static_cast<Source>(std::stoi(comm.broadcast_control(std::to_string(static_cast<int>(mine)))));
}

void use_checkpoint(ResumePoint& point, const io::FoundCheckpoint& found) {
  point.source = found.folder;
  point.state_file = found.folder + "/" + io::kStateFile;
  point.record = found.manifest.record;
}

void use_newest(ResumePoint& point, const std::string& run_folder, dist::Communicator& comm) {
  if (const auto found = io::newest_complete(comm, run_folder, point.skipped)) use_checkpoint(point, *found);
}

void use_weights(ResumePoint& point, const std::string& path, dist::Communicator& comm) {
  const auto description = io::read_seal(comm, path);
  if (!nlohmann::json::accept(description.model)) {
    throw Error(Failure::input, path + ": its description is no JSON", Error::Seen::by_all_ranks);
  }
  io::verify_seal(comm, path);
  point.source = path;
  point.state_file = path;
  point.record.step = description.step;
  point.record.tokens = description.tokens;
  point.record.model = description.model;
}

void use_path(ResumePoint& point, const std::string& given, const std::string& run_dir, dist::Communicator& comm) {
  const bool in_checkpoint = fs::path(given).filename() == io::kStateFile;
  const std::string path = in_checkpoint ? fs::absolute(given).parent_path().string() : given;
  const Source kind = kind_of(path, comm);
  if (kind == Source::weights) use_weights(point, path, comm);
  if (kind == Source::checkpoint) use_checkpoint(point, {path, io::verify_checkpoint(comm, path)});
  if (kind == Source::run) use_newest(point, path, comm);
  if (point.source.empty()) {
    throw Error(Failure::input,
                path + ": no complete checkpoint" + (point.skipped.empty() ? "" : "; " + point.skipped.front()),
                Error::Seen::by_all_ranks);
  }
  const fs::path folder = (fs::path(path) / "").parent_path();
  const fs::path run = kind == Source::run ? folder : fs::absolute(folder).parent_path();
  if (same_folder(run.string(), run_dir)) point.folder = run_dir;
}

/// A run that was stopped before its first checkpoint is begun anew in its own folder; a finished one is left alone.
bool may_begin_anew(const std::string& folder) {
  return io::is_there(folder + "/" + train::kDeckFile) && !io::is_there(folder + "/" + train::kWeightsFile);
}

/// A run whose checkpoints are all broken is not begun anew: that would write over what may still be saved.
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

void refuse_disagreement(const ResumePoint& point, const io::CheckpointRecord& mine, std::int64_t steps) {
  std::string differences;
  for (const auto& difference : train::disagreements(point.record, mine)) {
    differences += (differences.empty() ? "" : "; ") + difference;
  }
  if (!differences.empty()) {
    throw Error(Failure::deck, point.source + ": the deck disagrees with it: " + differences,
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

bool same_folder(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

ResumePoint find_resume_point(const io::Deck& deck, const io::CheckpointRecord& mine, dist::Communicator& comm) {
  ResumePoint point;
  point.record = mine;
  const std::string& resume = deck.checkpoint.resume;
  if (resume == "none") return point;
  const std::string run_dir = io::without_trailing_slash(deck.run.dir);
  if (resume == "auto") {
    use_newest(point, run_dir, comm);
    if (point.source.empty() && !point.skipped.empty()) refuse_all_broken(run_dir, point.skipped);
    point.folder = dist::from_first_rank(
        comm, [&] { return !point.source.empty() || may_begin_anew(run_dir) ? run_dir : std::string(); });
  } else {
    use_path(point, resume, run_dir, comm);
    point.folder = comm.broadcast_control(point.folder);
  }
  if (!point.source.empty()) refuse_disagreement(point, mine, deck.run.steps);
  return point;
}

}  // namespace kozero::commands
