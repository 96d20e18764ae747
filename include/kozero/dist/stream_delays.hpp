// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stream_delays.hpp: random sleeps that a test puts between the pieces of work of a stream (device_stream.hpp).
#pragma once
#include <cstdint>

namespace kozero::dist {

class StreamDelays {
 public:
  /// As the environment says now: without KOZERO_STREAM_DELAY_US there are none.
  StreamDelays();
  /// How long the next sleep is to be; each object has sleeps of its own.
  std::int64_t next_us();
  void sleep();

 private:
  std::int64_t most_us_;
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

}  // namespace kozero::dist
