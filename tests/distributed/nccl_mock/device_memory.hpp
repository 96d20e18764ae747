// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_memory.hpp: the mock's work on a stream and its device memory, with one implementation per kind of build.
#pragma once
#include <cstddef>

namespace kozero::test {

/// Runs `work(argument)` on the stream: after all earlier work, and before all later work. The work may call the copies
/// below.
void put_on(void* stream, void (*work)(void*), void* argument);

void to_host(void* host, const void* device, std::size_t bytes);
void to_device(void* device, const void* host, std::size_t bytes);

/// nullptr if there is no memory left.
void* allocate(std::size_t bytes);
void release(void* memory);

}  // namespace kozero::test
