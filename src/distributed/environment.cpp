// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// environment.cpp: the launcher's environment variables; start and end of MPI, watched by two threads; this node's
// ranks.
#include <fcntl.h>
#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/mpi_settings.hpp>
#include <kozero/distributed/wait_clock.hpp>
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/liveness/heartbeat.hpp"
#include "src/distributed/liveness/launched_ranks.hpp"
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {
namespace {

std::atomic<int> rank_of_mpi{-1};  // -1: MPI is not up

/// 0 if the variable is not set.
int number_in(const Variables& variables, const char* name) {
  const char* text = variables(name);
  return text == nullptr ? 0 : std::atoi(text);
}

std::string shown(const char* name, int value) { return std::string(name) + " = " + std::to_string(value); }

const MPI_Comm kWorld = MPI_COMM_WORLD;
constexpr std::chrono::seconds kLongestAbort{10};  // then the process ends without MPI
constexpr rlim_t kFilesOfMpi = 64;
constexpr std::chrono::milliseconds kLastProgress{25};  // rank 0 gets rid of the heartbeat's last messages
constexpr std::chrono::milliseconds kOthersEnter{50};   // then all ranks but 0 enter MPI_Finalize

/// The CPUs that each rank of the node may run on, as text.
std::vector<std::string> cpus_of_all(MPI_Comm node, int local_ranks) {
  constexpr int kLength = 4096;  // more than any machine's ranges need
  std::string mine = as_ranges(allowed_cpus());
  mine.resize(kLength, '\0');
  std::string all(static_cast<std::size_t>(local_ranks) * kLength, '\0');
  check_mpi(MPI_Allgather(mine.data(), kLength, MPI_CHAR, all.data(), kLength, MPI_CHAR, node), "MPI_Allgather");
  std::vector<std::string> each;
  for (int r = 0; r < local_ranks; ++r) each.push_back(all.substr(static_cast<std::size_t>(r) * kLength, kLength));
  return each;
}

/// Throws Error(deck) if this process may open so few files that MPI's start would fail, where the library ends the
/// program.
void require_files() {
  struct rlimit files {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= kFilesOfMpi) return;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 16 * kFilesOfMpi);
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur >= kFilesOfMpi) return;
  throw Error(Failure::deck, "ulimit -n = " + std::to_string(files.rlim_cur) +
                                 ": MPI and a run open more files; accepted: " + std::to_string(kFilesOfMpi) +
                                 " or more; raise it (ulimit -n 1024)");
}

std::atomic<bool> mpi_is_starting = false;

/// MPI_Init of MPICH does not return an error: it prints lines of its own and exits. Rank 0 speaks for all, unless it
/// does not come to this.
void report_failed_start() {
  if (!mpi_is_starting) return;
  constexpr auto kStatus = static_cast<int>(Failure::communication);
  constexpr std::chrono::milliseconds kFirstRankPatience{500};
  const int rank = known_rank();
  if (rank > 0) std::this_thread::sleep_for(kFirstRankPatience);
  report_failure(kStatus, failure_line(rank, kStatus,
                                       "MPI did not start: its library ended the program, and its lines above say why "
                                       "(UCX_TLS, UCX_NET_DEVICES, limits)"));
  _exit(kStatus);
}

int start_mpi(int* argc, char*** argv) {
  int provided = 0;
  show_arrival();
  std::atexit(report_failed_start);
  const BlockingCall call(kMpiStart);
  mpi_is_starting = true;
  const int status = MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
  mpi_is_starting = false;
  check_mpi(status, kMpiStart);
  return provided;
}

/// Whether all ranks were given MPI_THREAD_MULTIPLE.
bool all_thread_multiple(int provided) {
  int lowest = provided == MPI_THREAD_MULTIPLE ? 1 : 0;
  const BlockingCall call("MPI_Allreduce");
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, kWorld), "MPI_Allreduce");
  return lowest == 1;
}

/// Writes the ranks' names, one per line, to the file that KOZERO_RANKS_FILE names, if it exists: kozero.sh learns that
/// the ranks take signals from now on, and which rank a process is.
void tell_names(const Heartbeat* heartbeat, int size) {
  const char* path = std::getenv("KOZERO_RANKS_FILE");
  const int file = path == nullptr ? -1 : ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  std::string names = heartbeat == nullptr ? "rank 0 (process " + std::to_string(::getpid()) + ")\n" : "";
  for (int rank = 0; heartbeat != nullptr && rank < size; ++rank) names += heartbeat->name_of(rank) + "\n";
  static_cast<void>(!::write(file, names.data(), names.size()));
  ::close(file);
}

/// Rank 0 enters MPI_Finalize last, and no rank makes progress in MPI before it enters. MPICH on UCX over TCP requires
/// this: MPI_Finalize closes a connection once the peer has acknowledged that, then blocks without progress. A rank
/// that acknowledges before it closes its own end waits for an acknowledgment that never comes.
void end_mpi(int rank, int size) {
  if (size > 1) std::this_thread::sleep_for(rank == 0 ? kLastProgress + kOthersEnter : kLastProgress);
  const BlockingCall call("MPI_Finalize");
  MPI_Finalize();
}

}  // namespace

int known_rank() {
  if (rank_of_mpi >= 0) return rank_of_mpi;
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

std::string launcher_world_size(const Variables& variables) {
  constexpr std::array<const char*, 2> kOfMpi = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE"};
  bool has_own = false;
  for (const char* name : kOfMpi) {
    const int size = number_in(variables, name);
    if (size > 1) return shown(name, size);
    has_own = has_own || size > 0;
  }
  if (has_own) return "";
  if (const int rank = number_in(variables, "PMIX_RANK"); rank > 0) return shown("PMIX_RANK", rank);
  const bool in_step = variables("SLURM_STEP_ID") != nullptr && variables("SLURM_PROCID") != nullptr;
  const int tasks = in_step ? number_in(variables, "SLURM_STEP_NUM_TASKS") : 0;
  return tasks > 1 ? shown("SLURM_STEP_NUM_TASKS", tasks) : "";
}

int unused_slurm_tasks(const Variables& variables) {
  for (const char* name : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_STEP_ID"}) {
    if (variables(name) != nullptr) return 0;
  }
  const int tasks = number_in(variables, "SLURM_NTASKS");
  return tasks > 1 ? tasks : 0;
}

struct Environment::Threads {
  Watchdog watchdog;
  std::optional<Heartbeat> heartbeat;
};

Environment::Environment(int* argc, char*** argv, double timeout_s) {
  set_comm_timeout(timeout_s);
  require_files();
  set_variables_of_mpi();
  remember_launcher();
  threads_ = std::make_unique<Threads>();
  int running = 0;
  int provided = 0;
  check_mpi(MPI_Initialized(&running), "MPI_Initialized");
  if (running != 0) {
    check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    provided = start_mpi(argc, argv);
    owned_ = true;
  }
  check_mpi(MPI_Comm_set_errhandler(kWorld, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(kWorld, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(kWorld, &size_), "MPI_Comm_size");
  rank_of_mpi = rank_;
  thread_multiple_ = all_thread_multiple(provided);
  if (size_ > 1 && thread_multiple_) threads_->heartbeat.emplace(kWorld);
  count_ranks_of_node();
  if (rank_ == 0) tell_names(threads_->heartbeat ? &*threads_->heartbeat : nullptr, size_);
}

Environment::Environment(WithoutMpi /*tag*/) : rank_(known_rank()) {}

void Environment::count_ranks_of_node() {
  const BlockingCall call("MPI_Comm_split_type");
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(kWorld, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(node, &local_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(node, &local_ranks_), "MPI_Comm_size");
  const auto cpus = cpus_of_all(node, local_ranks_);
  const auto mine = cpus.begin() + local_rank_;
  cpu_sharers_ = static_cast<int>(std::count(cpus.begin(), cpus.end(), *mine));
  cpu_sharer_ = static_cast<int>(std::count(cpus.begin(), mine, *mine));
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  Patience::set_cores_are_shared(cpu_sharers_ > std::ssize(allowed_cpus()));
}

Environment::~Environment() {
  if (threads_ == nullptr) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (threads_->heartbeat && finalized == 0 && std::uncaught_exceptions() == 0) {
    const std::string whom = threads_->heartbeat->end();
    if (!whom.empty()) {
      constexpr auto kStatus = static_cast<int>(Failure::communication);
      report_failure(kStatus,
                     failure_line(rank_, kStatus,
                                  "rank " + std::to_string(rank_) + " waited at its end for " + whom + details(rank_)));
      std::fflush(nullptr);
      _exit(kStatus);
    }
  }
  threads_->heartbeat.reset();
  if (owned_ && finalized == 0) end_mpi(rank_, size_);
}

void Environment::obey_timeout(double timeout_s) { set_comm_timeout(timeout_s); }

Ranks Environment::world() const { return ranks_of(kWorld, rank_, size_); }

bool Environment::has_peers() {
  int started = 0;
  int finalized = 0;
  int size = 1;
  MPI_Initialized(&started);
  MPI_Finalized(&finalized);
  if (started != 0 && finalized == 0) MPI_Comm_size(kWorld, &size);
  return size > 1;
}

std::string Environment::library() {
  std::string text = library_description();
  // MPICH: a line each for version, date, device ...; Open MPI: "Open MPI v4.1.4, package: ..."
  text = text.substr(0, text.find_first_of(",\n"));
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

void Environment::abort(int status) {
  std::thread([status] {
    std::this_thread::sleep_for(kLongestAbort);
    _exit(status);
  }).detach();
  MPI_Abort(MPI_COMM_WORLD, status);
  std::abort();
}

RanksOfColor::RanksOfColor(const Ranks& parent, int color) {
  MPI_Comm comm = MPI_COMM_NULL;
  const BlockingCall call("MPI_Comm_split");
  check_mpi(MPI_Comm_split(mpi_comm(parent), color < 0 ? MPI_UNDEFINED : color, 0, &comm), "MPI_Comm_split");
  if (comm != MPI_COMM_NULL) ranks_ = ranks_of(comm);
}

RanksOfColor::~RanksOfColor() {
  if (!contain_me()) return;
  MPI_Comm comm = mpi_comm(ranks_);
  const BlockingCall call("MPI_Comm_free");
  MPI_Comm_free(&comm);
}

FirstRanks::FirstRanks(const Ranks& parent, int count) : RanksOfColor(parent, parent.rank() < count ? 0 : -1) {}

}  // namespace kozero::distributed
