// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// position.hpp: how far this process's main thread has come, for reports of ranks that wait in vain.
//   { const Phase phase("evaluation"); ... }      position().step = 12;      position().unit = 3;
// Written by the main thread, read by any. Names are string literals.
#pragma once
#include <atomic>
#include <cstdint>

namespace kozero {

struct Position {
  std::atomic<const char*> phase{"start-up"};
  std::atomic<std::int64_t> step{0};  ///< 0: before the first
  std::atomic<int> unit{-1};          ///< of the ParameterTable, of the newest collective; -1: none
};

inline Position& position() {
  static Position here;
  return here;
}

/// Names the phase from construction to destruction.
class Phase {
 public:
  explicit Phase(const char* name) : before_(position().phase.exchange(name)) {}
  ~Phase() { position().phase = before_; }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  const char* before_;
};

}  // namespace kozero
