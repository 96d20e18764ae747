// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_stream.cpp: the random delays of a stream, which a test sets by KOZERO_STREAM_DELAY_US.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <kozero/core/random.hpp>
#include "src/distributed/nccl/device_stream.hpp"

namespace kozero::distributed {
namespace {

std::int64_t number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoll(text);
}

std::atomic<int> num_objects = 0;

}  // namespace

StreamDelays::StreamDelays()
    : most_us_(number_in("KOZERO_STREAM_DELAY_US")),
      key_(stream_key(static_cast<std::uint64_t>(number_in("KOZERO_STREAM_DELAY_SEED")),
                      std::to_string(num_objects++))) {}

std::int64_t StreamDelays::next_us() {
  if (most_us_ <= 0) return 0;
  return static_cast<std::int64_t>(philox(key_, counter_of(next_++)).x[0]) % (most_us_ + 1);
}

void StreamDelays::sleep() {
  const std::int64_t us = next_us();
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

}  // namespace kozero::distributed
