// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// group_communicator.cpp: MPI's error texts, the reports of waits that timed out, and control traffic by MPI's
// nonblocking collectives, so that a wait can yield and time out.
#include <mpi.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include <kozero/core/error.hpp>
#include "src/distributed/chunks.hpp"
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/liveness/heartbeat.hpp"
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  int rank = 0;
  MPI_Error_string(code, text.data(), &length);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  throw Error(Failure::communication, "rank " + std::to_string(rank) + ": " + call +
                                          " failed: " + std::string(text.data(), static_cast<std::size_t>(length)));
}

MPI_Comm mpi_comm(const Ranks& ranks) {
  const std::uintptr_t handle = ranks.handle();
  MPI_Comm comm = MPI_COMM_NULL;
  static_assert(sizeof(comm) <= sizeof(handle));
  std::memcpy(&comm, &handle, sizeof(comm));
  return comm;
}

Ranks ranks_of(MPI_Comm comm, int rank, int size) {
  std::uintptr_t handle = 0;
  std::memcpy(&handle, &comm, sizeof(comm));
  return {handle, rank, size};
}

Ranks ranks_of(MPI_Comm comm) {
  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return ranks_of(comm, rank, size);
}

namespace {

constexpr std::size_t kCollectives = 4;  // named in a report
constexpr std::size_t kRanks = 8;

/// The job's rank number of each rank of `comm`.
std::vector<int> ranks_in_job(MPI_Comm comm, int size) {
  std::vector<int> own(static_cast<std::size_t>(size));
  std::iota(own.begin(), own.end(), 0);
  std::vector<int> in_job(own.size());
  MPI_Group group{};
  MPI_Group job{};
  check_mpi(MPI_Comm_group(comm, &group), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &job), "MPI_Comm_group");
  check_mpi(MPI_Group_translate_ranks(group, size, own.data(), job, in_job.data()), "MPI_Group_translate_ranks");
  check_mpi(MPI_Group_free(&group), "MPI_Group_free");
  check_mpi(MPI_Group_free(&job), "MPI_Group_free");
  return in_job;
}

constexpr std::int64_t kControlMessage = std::int64_t{1} << 30;
constexpr int kTag = 0;  // of messages; back ends use other tags

}  // namespace

std::string in_seconds(double seconds) {
  const auto text = std::to_string(seconds);
  return text.substr(0, text.find('.') + 2);
}

std::string waited_in_vain(int rank, double seconds, const char* collective, const std::string& whom) {
  return "rank " + std::to_string(rank) + " waited " + in_seconds(seconds) + " s in " + collective + " for " + whom;
}

std::string lost_rank(int rank) {
  const Heartbeat* heartbeat = Heartbeat::running();
  const std::string name = heartbeat == nullptr ? "rank " + std::to_string(rank) : heartbeat->name_of(rank);
  return name + kLostOrTooShort;
}

std::string details(int rank) {
  const std::string begin = "\n[rank " + std::to_string(rank) + "]   ";
  std::string text;
  const std::string newest = whereabouts().newest(kCollectives);
  if (!newest.empty()) text += begin + "newest collectives here: " + newest;
  if (const Heartbeat* heartbeat = Heartbeat::running()) {
    for (const auto& line : heartbeat->positions_of_ranks(kRanks)) text += begin + line;
  }
  return text;
}

void keep_for_ever(std::shared_ptr<void> memory) {
  static std::mutex mutex;
  static auto* const kKept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kKept->push_back(std::move(memory));
}

GroupCommunicator::GroupCommunicator(const Ranks& parent, GroupTraits traits)
    : rank_(parent.rank()), size_(parent.size()), traits_(traits) {
  {
    const BlockingCall call("MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(mpi_comm(parent), &comm_), "MPI_Comm_dup");
  }
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int alike = MPI_UNEQUAL;
  check_mpi(MPI_Comm_compare(comm_, MPI_COMM_WORLD, &alike), "MPI_Comm_compare");
  spans_job_ = alike == MPI_CONGRUENT;
  job_ranks_ = ranks_in_job(comm_, size_);
}

GroupCommunicator::~GroupCommunicator() {
  if (abandoned()) return;
  const BlockingCall call("MPI_Comm_free");
  MPI_Comm_free(&comm_);
}

bool GroupCommunicator::abandoned() const { return !loss_.empty() || std::uncaught_exceptions() > 0; }

void GroupCommunicator::begin(const char* collective, std::int64_t bytes) {
  if (!loss_.empty()) throw Error(Failure::communication, loss_);
  look();
  whereabouts().started({.of_saver = traits_.role == Role::saver,
                         .name = collective,
                         .owner = traits_.label,
                         .sequence = ++sequence_,
                         .bytes = bytes});
}

void GroupCommunicator::lose(const std::string& how) {
  loss_ = how + details(job_rank());
  throw Error(Failure::communication, loss_);
}

void GroupCommunicator::lose(const char* collective, int peer) {
  const std::string whom = lost_rank(job_ranks_.at(static_cast<std::size_t>(peer)));
  lose(waited_in_vain(job_rank(), traits_.timeout_s, collective, whom));
}

void GroupCommunicator::receive(void* to, std::int64_t bytes, int peer, PendingMessages& messages) {
  if (bytes == 0) return;
  check_mpi(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, peer, kTag, comm_, messages.add(peer)), "MPI_Irecv");
}

void GroupCommunicator::send(const void* from, std::int64_t bytes, int peer, PendingMessages& messages) {
  if (bytes == 0) return;
  check_mpi(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, peer, kTag, comm_, messages.add(peer)), "MPI_Isend");
}

void GroupCommunicator::exchange_shards(char* full, const Partition& partition, std::int64_t element,
                                        std::int64_t message_bytes, int stride, PendingMessages& messages) {
  const Chunks chunks(partition, chunk_extent(message_bytes, 1, element));
  const int most = static_cast<int>(chunks.count()) * 2 * (size_ / stride);
  if (messages.capacity() < most) messages = PendingMessages(most);
  for (std::int64_t k = 0; k < chunks.count(); ++k) {
    // At each distance every rank sends to one rank and receives from one, so that no rank is the first target of all.
    for (int distance = stride; distance < size_; distance += stride) {
      send(full + chunks.begin(rank_, k) * element, chunks.size(rank_, k) * element, (rank_ + distance) % size_,
           messages);
    }
    for (int distance = stride; distance < size_; distance += stride) {
      const int from = (rank_ - distance + size_) % size_;
      receive(full + chunks.begin(from, k) * element, chunks.size(from, k) * element, from, messages);
    }
  }
}

bool GroupCommunicator::are_done(PendingMessages& messages, const char* collective) {
  int done = 0;
  check_mpi(MPI_Testall(messages.count(), messages.requests(), &done, MPI_STATUSES_IGNORE), collective);
  if (done != 0) messages.clear();
  return done != 0;
}

int GroupCommunicator::first_late(PendingMessages& messages, const char* collective) {
  int late = 0;
  for (int finished = 1; late + 1 < messages.count(); ++late) {
    check_mpi(MPI_Request_get_status(messages.requests()[late], &finished, MPI_STATUS_IGNORE), collective);
    if (finished == 0) break;
  }
  return messages.peer(late);
}

void GroupCommunicator::wait_for(PendingMessages& messages, const char* collective) {
  const Whereabouts::Wait waits(traits_.role);
  Patience patience(traits_.timeout_s, traits_.waiting);
  while (!are_done(messages, collective)) {
    if (!patience.pause()) lose(collective, first_late(messages, collective));
  }
}

void GroupCommunicator::check_wait(const Patience& patience, const char* collective) {
  const Heartbeat* heartbeat = spans_job_ ? Heartbeat::running() : nullptr;
  if (heartbeat == nullptr || !traits_.is_patient) {
    const double longest_s = std::max(traits_.timeout_s, traits_.io_timeout_s);
    if (patience.waited() < longest_s) return;
    lose(waited_in_vain(job_rank(), longest_s, collective,
                        heartbeat == nullptr ? kAnotherRank : heartbeat->awaited(traits_.role)));
  }
  const std::string whom = heartbeat->vain(traits_.role);
  if (!whom.empty()) lose(waited_in_vain(job_rank(), patience.waited(), collective, whom));
  if (traits_.io_timeout_s > 0.0 && patience.waited() >= traits_.io_timeout_s) {
    loss_ = "rank " + std::to_string(job_rank()) + " waited " + in_seconds(patience.waited()) +
            " s (checkpoint.io_timeout_s) for " + heartbeat->working_rank(traits_.role) +
            " to write: its disk hangs or is too slow" + details(job_rank());
    throw Error(Failure::write, loss_);
  }
}

void GroupCommunicator::wait_for(MPI_Request* request, const char* collective) {
  const Whereabouts::Wait waits(traits_.role);
  Patience patience(traits_.timeout_s, traits_.waiting);
  int done = 0;
  while (true) {
    check_mpi(MPI_Test(request, &done, MPI_STATUS_IGNORE), collective);
    if (done != 0) return;
    patience.pause();
    check_wait(patience, collective);
  }
}

void GroupCommunicator::barrier() {
  begin("barrier", 0);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
  wait_for(&request, "barrier");
}

std::vector<std::byte> GroupCommunicator::gather_control(std::span<const std::byte> mine) {
  begin("gather_control", static_cast<std::int64_t>(mine.size()));
  require(mine.size() <= std::numeric_limits<int>::max(), "gather_control: more than 2 GiB from a rank");
  const int count = static_cast<int>(mine.size());
  RequestMemory sent(std::vector<std::byte>(mine.begin(), mine.end()));
  RequestMemory all(std::vector<std::byte>(mine.size() * static_cast<std::size_t>(size_)));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(sent->data(), count, MPI_BYTE, all->data(), count, MPI_BYTE, comm_, &request),
            "MPI_Iallgather");
  wait_for(&request, "gather_control");
  sent.taken_when_done();
  return all.taken_when_done();
}

std::vector<std::uint64_t> GroupCommunicator::sum_control(std::span<const std::uint64_t> mine) {
  begin("sum_control", static_cast<std::int64_t>(mine.size_bytes()));
  RequestMemory sums(std::vector<std::uint64_t>(mine.begin(), mine.end()));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(
      MPI_Iallreduce(MPI_IN_PLACE, sums->data(), static_cast<int>(mine.size()), MPI_UINT64_T, MPI_SUM, comm_, &request),
      "MPI_Iallreduce");
  wait_for(&request, "sum_control");
  return sums.taken_when_done();
}

void GroupCommunicator::broadcast_bytes(void* bytes, std::int64_t count) {
  for (std::int64_t first = 0; first < count; first += kControlMessage) {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto chunk = static_cast<int>(std::min(kControlMessage, count - first));
    check_mpi(MPI_Ibcast(static_cast<char*>(bytes) + first, chunk, MPI_BYTE, 0, comm_, &request), "MPI_Ibcast");
    wait_for(&request, "broadcast_control");
  }
}

std::string GroupCommunicator::broadcast_control(const std::string& bytes) {
  begin("broadcast_control", rank_ == 0 ? static_cast<std::int64_t>(bytes.size()) : 0);
  RequestMemory result(rank_ == 0 ? bytes : std::string());
  RequestMemory length(static_cast<std::int64_t>(result->size()));
  broadcast_bytes(&*length, sizeof(*length));
  result->resize(static_cast<std::size_t>(*length));
  broadcast_bytes(result->data(), *length);
  length.taken_when_done();
  return result.taken_when_done();
}

}  // namespace kozero::distributed
