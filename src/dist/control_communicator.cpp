// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <kozero/core/error.hpp>
#include <kozero/dist/control_communicator.hpp>
#include <kozero/dist/self_communicator.hpp>

#include "group_communicator.hpp"
#include "mpi_check.hpp"

namespace kozero::dist {
namespace {

class ControlCommunicator final : public GroupCommunicator {
 public:
  ControlCommunicator(MPI_Comm parent, double timeout_s) : GroupCommunicator(parent, timeout_s, Waiting::sleeps) {}

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

std::unique_ptr<Communicator> make_control_communicator(const void* mpi_comm, double timeout_s) {
  const auto parent = *static_cast<const MPI_Comm*>(mpi_comm);
  int size = 1;
  check_mpi(MPI_Comm_size(parent, &size), "MPI_Comm_size");
  if (size == 1) return make_self_communicator();
  return std::make_unique<ControlCommunicator>(parent, timeout_s);
}

}  // namespace kozero::dist
