// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_memory_host.cpp: the mock's work goes to the queue of a host build's stream, and its memory is host memory.
#include <cstdlib>
#include <cstring>

#include "src/distributed/nccl/device_stream.hpp"

#include "device_memory.hpp"

namespace kozero::test {

void put_on(void* stream, void (*work)(void*), void* argument) {
  auto* handle = static_cast<distributed::HostStreamHandle*>(stream);
  handle->enqueue(handle, work, argument);
}

void to_host(void* host, const void* device, std::size_t bytes) { std::memcpy(host, device, bytes); }
void to_device(void* device, const void* host, std::size_t bytes) { std::memcpy(device, host, bytes); }

void* allocate(std::size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
void release(void* memory) { std::free(memory); }

}  // namespace kozero::test
