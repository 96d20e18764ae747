// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// make_communicator.cpp: the table of back ends. A new one is a row here and a file of its own.
#include <algorithm>
#include <mpi.h>
#include <utility>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/dist/communicator_decorators.hpp>
#include <kozero/dist/make_communicator.hpp>
#include "src/dist/back_ends.hpp"
#include "src/dist/group_communicator.hpp"

namespace kozero::dist {
namespace {

const std::vector<std::string> kLaterBackends = {"ring"};

struct Group {
  const void* mpi_comm;
  int rank;
  int size;
};

Group group_of(const void* mpi_comm) {
  Group group{mpi_comm, 0, 1};
  const auto comm = *static_cast<const MPI_Comm*>(mpi_comm);
  check_mpi(MPI_Comm_rank(comm, &group.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &group.size), "MPI_Comm_size");
  return group;
}

// What `auto` means for these ranks; one line where it is not what they would expect.
std::string choose(const Group& group, const CommunicatorOptions& options) {
  if (group.size == 1) return "self";
  const std::string for_nccl = kHostIsDevice ? "" : nccl_unavailable_reason(group.mpi_comm);
  if (!kHostIsDevice && for_nccl.empty()) return "nccl";
  const std::string for_shm = shm_unavailable_reason(group.mpi_comm, options);
  const std::string taken = for_shm.empty() ? "shm" : "mpi";
  const std::string why = for_nccl + (for_nccl.empty() || for_shm.empty() ? "" : "; ") + for_shm;
  if (group.rank == 0 && !why.empty()) options.notice("comm.backend = auto takes " + taken + ": " + why);
  return taken;
}

[[noreturn]] void refuse(const std::string& backend, const std::string& reason) {
  throw Error(Failure::deck, "comm.backend = " + backend + ": " + reason, Error::Seen::by_all_ranks);
}

}  // namespace

const std::vector<std::string>& backend_names() {
  static const std::vector<std::string> names = {"auto", "self", "mpi", "shm", "nccl"};
  return names;
}

void check_backend_name(const std::string& backend) {
  const auto& names = backend_names();
  if (std::find(names.begin(), names.end(), backend) != names.end()) return;
  const bool later = std::find(kLaterBackends.begin(), kLaterBackends.end(), backend) != kLaterBackends.end();
  std::string text = later ? "not built yet; accepted are " : "accepted are ";
  for (const auto& name : names) text += (name == names.front() ? "" : ", ") + name;
  const std::string nearest = nearest_name(backend, names.data(), names.data() + names.size());
  refuse(backend, nearest.empty() || later ? text : text + "; nearest is " + nearest);
}

std::string backend_of(const std::string& backend, const void* mpi_comm, const CommunicatorOptions& options) {
  check_backend_name(backend);
  return backend == "auto" ? choose(group_of(mpi_comm), options) : backend;
}

std::string assumed_backend(int size, bool on_gpus) {
  if (size == 1) return "self";
  return on_gpus ? "nccl" : "shm";
}

std::unique_ptr<Communicator> for_device(std::unique_ptr<Communicator> comm, MemoryLedger& ledger,
                                         const CommunicatorOptions& options) {
  if (kHostIsDevice) return comm;
  return std::make_unique<StagedCommunicator>(std::move(comm), ledger, options.chunk_bytes);
}

std::unique_ptr<Communicator> make_communicator(const std::string& backend, const void* mpi_comm, MemoryLedger& ledger,
                                                const CommunicatorOptions& options) {
  const std::string name = backend_of(backend, mpi_comm, options);
  if (name == "self") {
    const int size = group_of(mpi_comm).size;
    if (size > 1) refuse(name, "it serves one rank, but " + std::to_string(size) + " were started; take auto");
    return make_self_communicator();
  }
  if (name == "mpi") return for_device(make_mpi_communicator(mpi_comm, ledger, options), ledger, options);
  if (name == "nccl") {
    const std::string unavailable_reason = backend == "auto" ? "" : nccl_unavailable_reason(mpi_comm);
    if (!unavailable_reason.empty()) refuse(name, unavailable_reason + "; or take shm or mpi");
    return make_nccl_communicator(mpi_comm, ledger, options);
  }
  const std::string unavailable_reason = backend == "auto" ? "" : shm_unavailable_reason(mpi_comm, options);
  if (!unavailable_reason.empty()) refuse(name, unavailable_reason + "; take mpi, or auto");
  return for_device(make_shm_communicator(mpi_comm, ledger, options), ledger, options);
}

std::unique_ptr<Communicator> make_planned_communicator(const std::string& backend, int rank, int size,
                                                        MemoryLedger& ledger, const CommunicatorOptions& options) {
  check_backend_name(backend);
  const std::string name = backend == "auto" ? assumed_backend(size) : backend;
  if (name == "self" && size > 1) refuse(name, "it serves one rank, not " + std::to_string(size) + "; take auto");
  if (name == "mpi") book_mpi_buffers(size, ledger, options);
  if (name == "shm") book_shm_window(size, ledger, options);
  if ((name == "mpi" || name == "shm") && !kHostIsDevice) {
    ledger.book(Memory::staging, "communication staging", StagedCommunicator::buffer_bytes(size, options.chunk_bytes));
  }
  return std::make_unique<PlannedCommunicator>(rank, size);
}

}  // namespace kozero::dist
