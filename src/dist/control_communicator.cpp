// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// control_communicator.cpp: a group communicator that moves no data, and the checks that use one.
#include <mpi.h>

#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/dist/checked_communicator.hpp>
#include <kozero/dist/control_communicator.hpp>
#include <kozero/dist/launcher.hpp>
#include <kozero/dist/self_communicator.hpp>

#include "group_communicator.hpp"
#include "heartbeat.hpp"
#include "mpi_check.hpp"
#include "vain_wait.hpp"
#include "whereabouts.hpp"

namespace kozero::dist {
namespace {

class ControlCommunicator final : public GroupCommunicator {
 public:
  using GroupCommunicator::GroupCommunicator;

  [[nodiscard]] std::string name() const override { return "control"; }
  Pending start_reduce_scatter(const float* /*full*/, float* /*slice*/, const Partition& /*partition*/) override {
    refuse();
  }
  Pending start_all_gather(const void* /*slice*/, void* /*full*/, const Partition& /*partition*/,
                           std::size_t /*element_size*/) override {
    refuse();
  }

 private:
  [[noreturn]] static void refuse() { throw Error(Failure::internal, "a control communicator was given data to move"); }
};

}  // namespace

std::unique_ptr<Communicator> checked(std::unique_ptr<Communicator> comm, MPI_Comm parent, GroupTraits traits) {
  traits.label = "checks";
  return std::make_unique<CheckedCommunicator>(std::move(comm), std::make_unique<ControlCommunicator>(parent, traits));
}

std::unique_ptr<Communicator> make_control_communicator(const void* mpi_comm, double timeout_s, ControlUse use) {
  const auto parent = *static_cast<const MPI_Comm*>(mpi_comm);
  int size = 1;
  check_mpi(MPI_Comm_size(parent, &size), "MPI_Comm_size");
  if (size == 1) return make_self_communicator();
  const bool beside = use.role == Role::saver;
  const GroupTraits traits{.label = beside ? "saver" : "control",
                           .timeout_s = timeout_s,
                           .waiting = beside ? Waiting::sleeps : Waiting::yields,
                           .role = use.role,
                           .is_patient = true,
                           .io_timeout_s = use.io_timeout_s};
  std::unique_ptr<Communicator> comm = std::make_unique<ControlCommunicator>(parent, traits);
  return use.checks_calls ? checked(std::move(comm), parent, traits) : std::move(comm);
}

bool is_waiting(Role role) { return whereabouts().is_waiting(role); }

void require_live_ranks(const char* what, double waited_s) {
  const Heartbeat* heartbeat = Heartbeat::running();
  const std::string whom = heartbeat == nullptr ? "" : heartbeat->vain(Role::training);
  if (whom.empty()) return;
  throw Error(Failure::communication, waited_in_vain(known_rank(), waited_s, what, whom) + details(known_rank()));
}

}  // namespace kozero::dist
