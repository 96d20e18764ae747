// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// group_communicator.cpp: control traffic by MPI's nonblocking collectives, so that a wait can yield and end.
#include <algorithm>
#include <exception>

#include <kozero/core/error.hpp>

#include "group_communicator.hpp"
#include "mpi_check.hpp"

namespace kozero::dist {
namespace {

constexpr std::int64_t kControlMessage = std::int64_t{1} << 30;

}  // namespace

std::string waited_in_vain(int rank, double seconds, const char* collective, const std::string& whom) {
  const auto text = std::to_string(seconds);
  return "rank " + std::to_string(rank) + " waited " + text.substr(0, text.find('.') + 2) + " s in " + collective +
         " for " + whom + ": it is lost, or comm.timeout_s is too short";
}

GroupCommunicator::GroupCommunicator(MPI_Comm parent, double timeout_s, Waiting waiting)
    : timeout_s_(timeout_s), waiting_(waiting) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

GroupCommunicator::~GroupCommunicator() {
  if (!abandoned()) MPI_Comm_free(&comm_);
}

bool GroupCommunicator::abandoned() const { return lost_ || std::uncaught_exceptions() > 0; }

void GroupCommunicator::lose(const std::string& how) {
  lost_ = true;
  throw Error(Failure::communication, how);
}

void GroupCommunicator::lose(const char* collective, const std::string& whom) {
  lose(waited_in_vain(rank_, timeout_s_, collective, whom));
}

void GroupCommunicator::wait(PendingMessages& messages, const char* collective) {
  Patience patience(timeout_s_, waiting_);
  int done = 0;
  while (true) {
    check_mpi(MPI_Testall(messages.count(), messages.requests(), &done, MPI_STATUSES_IGNORE), collective);
    if (done != 0) return messages.clear();
    if (!patience.pause()) break;
  }
  int late = 0;
  for (int finished = 1; late + 1 < messages.count(); ++late) {
    check_mpi(MPI_Request_get_status(messages.requests()[late], &finished, MPI_STATUS_IGNORE), collective);
    if (finished == 0) break;
  }
  lose(collective, "rank " + std::to_string(messages.peer(late)));
}

void GroupCommunicator::wait(MPI_Request* request, const char* collective) {
  Patience patience(timeout_s_, waiting_);
  int done = 0;
  while (true) {
    check_mpi(MPI_Test(request, &done, MPI_STATUS_IGNORE), collective);
    if (done != 0) return;
    if (!patience.pause()) lose(collective, "another rank");
  }
}

void GroupCommunicator::barrier() {
  look();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
  wait(&request, "barrier");
}

std::vector<double> GroupCommunicator::gather_control(const std::vector<double>& values) {
  look();
  std::vector<double> all(values.size() * static_cast<std::size_t>(size_));
  const int count = static_cast<int>(values.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(values.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, comm_, &request),
            "MPI_Iallgather");
  wait(&request, "gather_control");
  return all;
}

void GroupCommunicator::broadcast_bytes(void* bytes, std::int64_t count) {
  for (std::int64_t first = 0; first < count; first += kControlMessage) {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto piece = static_cast<int>(std::min(kControlMessage, count - first));
    check_mpi(MPI_Ibcast(static_cast<char*>(bytes) + first, piece, MPI_BYTE, 0, comm_, &request), "MPI_Ibcast");
    wait(&request, "broadcast_control");
  }
}

std::string GroupCommunicator::broadcast_control(const std::string& bytes) {
  look();
  std::string result = rank_ == 0 ? bytes : std::string();
  auto length = static_cast<std::int64_t>(result.size());
  broadcast_bytes(&length, sizeof(length));
  result.resize(static_cast<std::size_t>(length));
  broadcast_bytes(result.data(), length);
  return result;
}

}  // namespace kozero::dist
