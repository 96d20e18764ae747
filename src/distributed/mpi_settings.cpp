// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mpi_settings.cpp: variables of UCX, by the size of /dev/shm and by the MPI library.
#include <mpi.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include <kozero/distributed/mpi_settings.hpp>

namespace kozero::distributed {
namespace {

constexpr std::int64_t kSharedMemoryOfUcx = 8 << 20;  // bytes per rank, with a reserve
constexpr rlim_t kSharedFileOfUcx = 4200 << 10;       // bytes of a file in /dev/shm
constexpr const char* kTcpSegment = "256k";           // in UCX's notation

MpiSettings& settings() {
  static MpiSettings all;
  return all;
}

/// Sets a variable that is not set.
void set(const std::string& name, const std::string& value) {
  if (std::getenv(name.c_str()) != nullptr || setenv(name.c_str(), value.c_str(), 0) != 0) return;
  settings().emplace_back(name, value);
}

/// With a small /dev/shm, or a limit on the size of files (ulimit -f), UCX's transport "posix", which needs a file of
/// 4.1 MiB per rank, fails, and with it MPI_Init. So this transport is excluded, unless the user set the transports.
void spare_small_shared_memory() {
  struct statvfs shared {};
  if (statvfs("/dev/shm", &shared) != 0) return;
  const char* ranks = std::getenv("MPI_LOCALNRANKS");
  const int local_ranks = std::max(1, ranks == nullptr ? 1 : std::atoi(ranks));
  const std::int64_t bytes = static_cast<std::int64_t>(shared.f_blocks) * static_cast<std::int64_t>(shared.f_frsize);
  struct rlimit file {};
  const bool is_limited = ::getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur < kSharedFileOfUcx;
  if (is_limited || bytes < local_ranks * kSharedMemoryOfUcx) set("UCX_TLS", "^posix");
}

}  // namespace

MpiSettings settings_for_tcp(const Variables& variables, const std::string& library) {
  constexpr std::array<const char*, 3> kOfUser = {"UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE", "UCX_RNDV_THRESH"};
  if (library.find("MPICH") == std::string::npos || library.find("ch4:ucx") == std::string::npos) return {};
  if (std::ranges::any_of(kOfUser, [&](const char* name) { return variables(name) != nullptr; })) return {};
  // UCX does not start if the segments that it sends are larger than those that it receives.
  return {{"UCX_TCP_TX_SEG_SIZE", kTcpSegment}, {"UCX_TCP_RX_SEG_SIZE", kTcpSegment}};
}

std::string library_description() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown";
  text.resize(static_cast<std::size_t>(length));
  return text;
}

void set_variables_of_mpi() {
  spare_small_shared_memory();
  for (const auto& [name, value] : settings_for_tcp(std::getenv, library_description())) set(name, value);
}

const MpiSettings& settings_of_mpi() { return settings(); }

std::string text_of(const MpiSettings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) text += (text.empty() ? "" : " ") + name + "=" + value;
  return text;
}

}  // namespace kozero::distributed
