// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// group_communicator.hpp: the base of all back ends for several ranks: control traffic, waits with timeouts, and error
// texts. Every return code of MPI is checked. A wait ends in Error(communication) after comm.timeout_s:
//   rank 1 waited 4.0 s in gather_control for rank 0 on a (process 12), which gave no sign of life for 4.1 s: it is ...
//   [rank 1] newest collectives here: 811 all_gather of shm for unit 3 (4096 bytes) in step 12, forward_backward; ...
//   [rank 1] rank 0 on a (process 12): step 12, forward_backward, unit 2, working after all_gather 810 of shm ...
// After a rank was lost, every later collective throws, and no destructor makes a collective call.
#pragma once
#include <mpi.h>
#include <memory>
#include <string>
#include <vector>

#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/wait_clock.hpp>
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {

/// Throws Error(communication) with this rank, the call and MPI's text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// The communicator that `ranks` denotes, and the ranks of a communicator.
MPI_Comm mpi_comm(const Ranks& ranks);
Ranks ranks_of(MPI_Comm comm, int rank, int size);
Ranks ranks_of(MPI_Comm comm);

inline constexpr const char* kLostOrTooShort = ": it is lost, or comm.timeout_s is too short";
inline constexpr const char* kFarBehind = ": it is far behind, or comm.timeout_s is too short";
/// The name of the awaited rank if the waiting rank cannot tell which rank is missing.
inline constexpr const char* kAnotherRank = "another rank: it is lost, or comm.timeout_s is too short";

/// "4.0"
std::string in_seconds(double seconds);

/// The error text of a rank whose wait in `collective` for `whom` timed out; `whom` ends with the reason.
std::string waited_in_vain(int rank, double seconds, const char* collective, const std::string& whom);

/// "rank 2, on host b (process 17)", as far as known, and the reason.
std::string lost_rank(int rank);

/// The lines after the error text, each after a line break: this rank's newest collectives, and each rank's position.
std::string details(int rank);

/// At most `capacity` messages under way, with the peer rank of each. After a rank was lost, buffers of messages under
/// way are never freed, since a late message would overwrite memory reused for something else. The caller keeps the
/// arrays that it passed: main ends the process before it unwinds.
class PendingMessages {
 public:
  explicit PendingMessages(int capacity)
      : requests_(static_cast<std::size_t>(capacity), MPI_REQUEST_NULL), peers_(static_cast<std::size_t>(capacity)) {}

  /// Memory for the next request.
  MPI_Request* add(int peer) {
    peers_.at(count_) = peer;
    return &requests_.at(count_++);
  }
  void clear() { count_ = 0; }
  [[nodiscard]] int count() const { return static_cast<int>(count_); }
  [[nodiscard]] int capacity() const { return static_cast<int>(requests_.size()); }
  [[nodiscard]] MPI_Request* requests() { return requests_.data(); }
  /// Whether messages may still read or write their memory, which then must not be freed.
  [[nodiscard]] bool are_under_way() const { return count_ > 0; }
  [[nodiscard]] int peer(int index) const { return peers_.at(static_cast<std::size_t>(index)); }

 private:
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
  std::size_t count_ = 0;
};

/// Keeps `memory` alive until the process ends.
void keep_for_ever(std::shared_ptr<void> memory);

/// Memory of a request: freed with this object, or never if an exception leaves the request open.
template <class T>
class RequestMemory {
 public:
  explicit RequestMemory(T value) : value_(std::make_shared<T>(std::move(value))) {}
  ~RequestMemory() {
    if (!is_done_) keep_for_ever(value_);
  }
  RequestMemory(const RequestMemory&) = delete;
  RequestMemory& operator=(const RequestMemory&) = delete;

  T& operator*() { return *value_; }
  T* operator->() { return value_.get(); }
  T taken_when_done() {
    is_done_ = true;
    return std::move(*value_);
  }

 private:
  std::shared_ptr<T> value_;
  bool is_done_ = false;
};

struct GroupTraits {
  const char* label = "";  ///< in reports
  double timeout_s = 600.0;
  Waiting waiting = Waiting::yields;
  Role role = Role::training;
  bool is_patient = false;    ///< control traffic waits as long as all ranks live
  double io_timeout_s = 0.0;  ///< > 0: a patient wait ends after this time
};

class GroupCommunicator : public Communicator {
 public:
  GroupCommunicator(const Ranks& parent, GroupTraits traits);
  ~GroupCommunicator() override;
  GroupCommunicator(const GroupCommunicator&) = delete;
  GroupCommunicator& operator=(const GroupCommunicator&) = delete;

  [[nodiscard]] int rank() const final { return rank_; }
  [[nodiscard]] int size() const final { return size_; }

  void barrier() final;
  std::vector<std::byte> gather_control(std::span<const std::byte> mine) final;
  std::vector<std::uint64_t> sum_control(std::span<const std::uint64_t> mine) final;
  std::string broadcast_control(const std::string& bytes) final;

 protected:
  [[nodiscard]] MPI_Comm mpi() const { return comm_; }
  [[nodiscard]] double timeout() const { return traits_.timeout_s; }
  /// This rank's number in the job, which errors name.
  [[nodiscard]] int job_rank() const { return job_ranks_[static_cast<std::size_t>(rank_)]; }
  /// Whether a rank was lost, so that collectives cannot complete.
  [[nodiscard]] bool abandoned() const;

  /// Traces the start of a collective of `bytes` bytes. If a rank was lost before, throws the same error again.
  void begin(const char* collective, std::int64_t bytes);
  /// Throws Error(communication) with the known positions of all ranks.
  [[noreturn]] void lose(const std::string& how);
  /// Throws Error(communication): the wait in `collective` for rank `peer` timed out.
  [[noreturn]] void lose(const char* collective, int peer);
  /// Called before control traffic: throws if data under way were lost, so that no rank continues without them.
  virtual void look() {}
  // Start a message of `bytes` bytes; none if 0. Messages between two ranks keep their order.
  void receive(void* to, std::int64_t bytes, int peer, PendingMessages& messages);
  void send(const void* from, std::int64_t bytes, int peer, PendingMessages& messages);
  /// Starts an all-gather among the ranks r, r + stride, r + 2 stride, ...: each sends its shard of `full` to the
  /// others and receives theirs, in messages of at most `message_bytes`. `messages` must be empty and is resized.
  /// Sends come before receives. UCX writes a large message to a TCP connection as a whole, and answers the peer's
  /// request to send only afterwards. If a rank answered the peer before it sent its own request, the peer would begin
  /// its message and not answer until its end, so that the two directions of the link would take turns.
  void exchange_shards(char* full, const Partition& partition, std::int64_t element, std::int64_t message_bytes,
                       int stride, PendingMessages& messages);
  /// Whether all of `messages` are done; if so, clears them.
  bool are_done(PendingMessages& messages, const char* collective);
  /// The peer of the first message that is not done.
  int first_late(PendingMessages& messages, const char* collective);
  /// Waits for all of `messages` and clears them.
  void wait_for(PendingMessages& messages, const char* collective);
  /// Calls `advance()`, which makes progress without waiting and returns whether it made any, until `done()`. After
  /// timeout() without progress the rank `awaited()` is lost.
  template <class Advance, class Done, class Awaited>
  void advance_until(const Advance& advance, const Done& done, const Awaited& awaited, const char* collective) {
    const Whereabouts::Wait waits(traits_.role);
    Patience patience(timeout(), traits_.waiting);
    while (!done()) {
      if (advance()) {
        patience = Patience(timeout(), traits_.waiting);
      } else if (!patience.pause()) {
        lose(collective, awaited());
      }
    }
  }

 private:
  void wait_for(MPI_Request* request, const char* collective);
  /// Throws if the wait timed out.
  void check_wait(const Patience& patience, const char* collective);
  void broadcast_bytes(void* bytes, std::int64_t count);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> job_ranks_;
  GroupTraits traits_;
  std::uint64_t sequence_ = 0;  // of collectives
  bool spans_job_ = false;
  std::string loss_;  // error text thrown when a rank was lost
};

/// Wraps `comm` in a CheckedCommunicator, whose checks wait according to `traits`. Collective.
std::unique_ptr<Communicator> checked(std::unique_ptr<Communicator> comm, const Ranks& ranks, GroupTraits traits);

}  // namespace kozero::distributed
