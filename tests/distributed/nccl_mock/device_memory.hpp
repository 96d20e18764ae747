// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_memory.hpp: what the mock does with the stream and the memory it is given, one form a build.
#pragma once
#include <cstddef>

namespace kozero::test {

/// Runs `work(argument)` after all that is on the stream, and all that is put there later after it.
/// The work may copy below.
void put_on(void* stream, void (*work)(void*), void* argument);

void to_host(void* host, const void* device, std::size_t bytes);
void to_device(void* device, const void* host, std::size_t bytes);

/// nullptr where there is none.
void* allocate(std::size_t bytes);
void release(void* memory);

}  // namespace kozero::test
