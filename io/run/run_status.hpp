// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_status.hpp: the state or the end of a run, for batch scripts and for the next start in its folder.
//   status.json          {"state": "running" | "finished" | "preempted" | "failed", "why", "step", "exit_status",
//                         "host", "pid", "start", "end"}; why: one line, "" while running; times in UTC; written whole
//   ranks.json           rank 0, once at the start: [{"rank", "host", "pid", "threads", "cpus", "numa", "gpu"}, ...]
//   failure_rank_3.json  by a failing rank, or about a rank whose end another saw: {"rank", "host", "pid", "step",
//                        "why"}
// A run that was killed leaves "running", with a step that may be some seconds old.
#pragma once
#include <sys/types.h>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kozero::io {

inline constexpr const char* kStatusFile = "status.json";
inline constexpr const char* kRanksFile = "ranks.json";

/// A process of a job, and where its threads run.
struct RankProcess {
  std::string host;
  std::int64_t pid = 0;
  std::int64_t threads = 0;  ///< that compute; 0: not known
  std::string cpus = {};     ///< that they may use, "0-3,8-11"; "" if not known
  std::string numa = {};     ///< NUMA domains of these CPUs, "0"; "" if the system does not report them
  std::string gpu = {};      ///< "NVIDIA H100 80GB HBM3 at 0000:18:00.0"; "" on a host build
};

/// This process.
RankProcess this_process();
/// "2026-01-01T00:00:00Z"
std::string time_now();
/// In whole milliseconds, as metrics have it.
double seconds_since_1970();

struct RunStatus {
  std::string state = "running";
  std::string why;
  std::int64_t step = 0;  ///< the last complete step, as far as it is known
  std::optional<int> exit_status;
};

/// The files of one run. Any rank may have one; failure reporters have copies.
class RunRecord {
 public:
  /// `ranks`: of all, in rank order. Remembers status.json as it is now.
  RunRecord(std::string folder, std::vector<RankProcess> ranks);

  /// Rank 0: ranks.json and the status "running". Throws Error(write).
  void begin(std::int64_t step) const;
  /// Rank 0: the step of the running run. After a failure the next call tries again.
  void update(std::int64_t step) const noexcept;
  /// Writes how the run or its start ended. status.json must still be this run's "running", or unchanged since before
  /// begin(), whose step stays then. Does nothing after another rank's report, or if another run took the folder.
  /// Returns whether it was written. Throws nothing.
  bool end(const RunStatus& status) const noexcept;
  /// Writes the failure note of `rank`, which failed or was lost. An older note stays. Returns whether it was written.
  bool write_failure_note(int rank, std::int64_t step, const std::string& why) const noexcept;
  /// Appends a line to log.txt in one write, and syncs it. Makes no file. Throws nothing.
  void log(const std::string& line) const noexcept;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const std::vector<RankProcess>& ranks() const { return ranks_; }
  /// "rank 3 on host h"
  [[nodiscard]] std::string name_of(int rank) const;

 private:
  [[nodiscard]] bool is_ours() const;
  /// Whether begin() was not called yet, by this job or another one.
  [[nodiscard]] bool is_as_before() const { return has_folder() && status_text(folder_) == before_; }
  /// Whether the path still names the same folder as at the start; nothing is written into another folder.
  [[nodiscard]] bool has_folder() const;
  [[nodiscard]] static std::string status_text(const std::string& folder);
  void write(const RunStatus& status, const std::string& end) const;
  [[nodiscard]] std::string path_of(const std::string& file) const { return folder_ + "/" + file; }

  std::string folder_;
  std::vector<RankProcess> ranks_;
  std::string start_;
  std::pair<dev_t, ino_t> identity_{};
  std::string before_;  // status.json of the run before; "" if none
};

/// The state of the newest run in the folder; "" if status.json is absent or broken.
RunStatus status_of_run(const std::string& folder);

/// Whether the process was on this host and has ended. Of another host's process nothing is known: false.
bool is_gone(const RankProcess& process);

/// The ranks of the newest start in the folder; empty if ranks.json is absent or broken.
std::vector<RankProcess> ranks_in(const std::string& folder);

/// Whether the folder has a run's log or status.
bool holds_run(const std::string& folder);

/// How the earlier run in this folder failed: one line per lost or failed rank, "the run before ended at step N: ...";
/// empty if it finished or was preempted.
std::vector<std::string> notes_on_run_before(const std::string& folder);

/// Removes the notes of failed ranks. One process.
void clear_failure_notes(const std::string& folder);

}  // namespace kozero::io
