// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_obstacle.cpp: why ranks cannot use NCCL: no GPU, no library that serves, or one GPU for two of them.
#include <mpi.h>

#include <array>
#include <cstdlib>
#include <map>

#include <kozero/core/device.hpp>
#include <kozero/dist/control_communicator.hpp>
#include <kozero/dist/nccl_calls.hpp>
#include <kozero/dist/nccl_communicator.hpp>

#include "mpi_check.hpp"

namespace kozero::dist {
namespace {

/// Of this rank alone; opens the library where one can be of use.
std::string obstacle_here(nccl::Library& library) {
  const std::string for_gpus = "this program was built for CPUs, and NCCL moves data between GPUs: start kozero-cuda";
  if (kHostIsDevice && std::getenv("KOZERO_NCCL_LIBRARY") == nullptr) return for_gpus;
  library = nccl::open_library();
  return kHostIsDevice && library.obstacle.empty() && !library.is_double ? for_gpus : library.obstacle;
}

std::string node_name() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  check_mpi(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  return std::string(name.data(), static_cast<std::size_t>(length));
}

}  // namespace

std::string shared_gpu(const std::vector<RankDevice>& devices) {
  std::map<std::pair<std::string, std::string>, std::size_t> owners;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto& [node, gpu] = devices[rank];
    const auto [owner, is_first] = owners.emplace(std::pair{node, gpu}, rank);
    if (is_first) continue;
    return "ranks " + std::to_string(owner->second) + " and " + std::to_string(rank) + " are on the same GPU (" + gpu +
           " of node " + node + "), which NCCL refuses: start one rank a GPU";
  }
  return "";
}

std::string nccl_obstacle(const void* mpi_comm) {
  constexpr double kPatience = 600.0;
  const auto control = make_control_communicator(mpi_comm, kPatience);
  nccl::Library library;
  const auto obstacles = gather_text(*control, obstacle_here(library));
  for (std::size_t rank = 0; rank < obstacles.size(); ++rank) {
    if (!obstacles[rank].empty()) return (rank == 0 ? "" : "on rank " + std::to_string(rank) + " ") + obstacles[rank];
  }
  if (library.is_double) return "";
  const auto nodes = gather_text(*control, node_name());
  const auto gpus = gather_text(*control, device_name());
  std::vector<RankDevice> devices;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) devices.push_back({nodes[rank], gpus[rank]});
  return shared_gpu(devices);
}

}  // namespace kozero::dist
