// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// group_communicator.hpp: what every back end of several ranks shares: a duplicate of their MPI communicator, control
// traffic over it, and waits that end in Error(communication) after timeout_s.
// Once a rank was lost, or while an exception unwinds, the destructors make no collective call: nobody would answer.
#pragma once
#include <mpi.h>

#include <kozero/dist/communicator.hpp>

#include "patience.hpp"

namespace kozero::dist {

/// Messages under way, with the rank at the other end of each; at most `capacity` of them.
class PendingMessages {
 public:
  explicit PendingMessages(int capacity)
      : requests_(static_cast<std::size_t>(capacity), MPI_REQUEST_NULL), peers_(static_cast<std::size_t>(capacity)) {}

  /// The place for the next request.
  MPI_Request* add(int peer) {
    peers_.at(count_) = peer;
    return &requests_.at(count_++);
  }
  void clear() { count_ = 0; }
  [[nodiscard]] int count() const { return static_cast<int>(count_); }
  [[nodiscard]] int capacity() const { return static_cast<int>(requests_.size()); }
  [[nodiscard]] MPI_Request* requests() { return requests_.data(); }
  [[nodiscard]] int peer(int index) const { return peers_.at(static_cast<std::size_t>(index)); }

 private:
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
  std::size_t count_ = 0;
};

/// What is said of a rank that waited in `collective` for `whom` in vain.
std::string waited_in_vain(int rank, double seconds, const char* collective, const std::string& whom);

class GroupCommunicator : public Communicator {
 public:
  GroupCommunicator(MPI_Comm parent, double timeout_s, Waiting waiting = Waiting::yields);
  ~GroupCommunicator() override;
  GroupCommunicator(const GroupCommunicator&) = delete;
  GroupCommunicator& operator=(const GroupCommunicator&) = delete;

  [[nodiscard]] int rank() const final { return rank_; }
  [[nodiscard]] int size() const final { return size_; }

  void barrier() final;
  std::vector<double> gather_control(const std::vector<double>& values) final;
  std::string broadcast_control(const std::string& bytes) final;

 protected:
  [[nodiscard]] MPI_Comm mpi() const { return comm_; }
  [[nodiscard]] double timeout() const { return timeout_s_; }
  /// No other rank can be expected to answer.
  [[nodiscard]] bool abandoned() const;

  /// Throws Error(communication).
  [[noreturn]] void lose(const std::string& how);
  /// This rank waited in `collective` for `whom` in vain.
  [[noreturn]] void lose(const char* collective, const std::string& whom);
  /// Control traffic asks first: throws where data under way were lost, so that no rank goes on with what did not come.
  virtual void look() {}
  /// Waits for all of `messages` and clears them.
  void wait(PendingMessages& messages, const char* collective);

 private:
  void wait(MPI_Request* request, const char* collective);
  void broadcast_bytes(void* bytes, std::int64_t count);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  double timeout_s_;
  Waiting waiting_;
  bool lost_ = false;
};

}  // namespace kozero::dist
