// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator_options.hpp: the sizes and limits of the back ends, equal on all ranks.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace kozero::dist {

/// Bytes that can still be had for shared memory on this node; 0 where it has none.
std::int64_t free_shared_memory();

/// Bytes of the GPU that nobody has taken; 0 on a host build.
std::int64_t free_device_memory();

/// One line on stderr.
void print_notice(const std::string& line);

/// Whether communicators of several ranks compare what the ranks call (checked_communicator.hpp), where nothing is
/// said.
#if defined(NDEBUG)
inline constexpr bool kChecksCalls = false;
#else
inline constexpr bool kChecksCalls = true;
#endif

struct CommunicatorOptions {
  double timeout_s = 600.0;      ///< comm.timeout_s: how long a rank waits for another one
  std::uint64_t under_way = 16;  ///< most collectives from the oldest unfinished one to the newest
  bool checks_calls = kChecksCalls;
  bool deterministic = true;                           ///< run.deterministic: nothing that may change a bit
  std::int64_t chunk_bytes = std::int64_t{4} << 20;    ///< of each of the two buffers that data passes through
  std::int64_t message_bytes = std::int64_t{1} << 30;  ///< of the largest message: MPI counts in int
  std::string shm_folder = "/dev/shm";                 ///< where shared arrays lie
  std::function<std::int64_t()> shm_free_bytes = free_shared_memory;
  std::function<std::int64_t()> free_device_bytes = free_device_memory;
  std::function<void(const std::string&)> notice = print_notice;  ///< called on rank 0
};

}  // namespace kozero::dist
