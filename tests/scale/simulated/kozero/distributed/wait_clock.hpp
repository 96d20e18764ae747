// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// wait_clock.hpp: replaces the header of this name in a simulation: waits last on the simulated clock, without
// timeouts.
#pragma once
#include <chrono>

namespace kozero::scale {

/// Lets simulated time pass until this rank looks again for what it waits for.
void look_again(int looks);

}  // namespace kozero::scale

namespace kozero::distributed {

class WaitClock {
 public:
  double interval(double /*timeout_s*/) { return 0.0; }
  double look(double /*timeout_s*/) { return 0.0; }
  void restart() {}
};

enum class Waiting { yields, sleeps };

class Patience {
 public:
  explicit Patience(double /*seconds*/, Waiting /*waiting*/ = Waiting::yields) {}

  static void set_cores_are_shared(bool /*shared*/) {}
  bool pause() {
    scale::look_again(looks_++);
    return true;
  }
  [[nodiscard]] double waited() const { return 0.0; }

 private:
  int looks_ = 0;
};

}  // namespace kozero::distributed
