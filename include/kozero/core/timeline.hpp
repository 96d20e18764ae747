// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// timeline.hpp: seconds by phase of a step.
//   { auto timer = timeline.phase("forward_backward"); ... }     from construction to destruction, without a fence
// The trainer reads and clears the sums once a step. A phase is also the process's position (position.hpp).
#pragma once
#include <chrono>
#include <map>
#include <string>

#include <kozero/core/position.hpp>

namespace kozero {

class Timeline {
 public:
  class Scope {
   public:
    Scope(Timeline& timeline, const char* name)
        : timeline_(timeline), name_(name), phase_(name), start_(Clock::now()) {}
    ~Scope() { timeline_.seconds_[name_] += std::chrono::duration<double>(Clock::now() - start_).count(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    using Clock = std::chrono::steady_clock;
    Timeline& timeline_;
    const char* name_;
    Phase phase_;
    Clock::time_point start_;
  };

  [[nodiscard]] Scope phase(const char* name) { return Scope(*this, name); }
  [[nodiscard]] const std::map<std::string, double>& seconds() const { return seconds_; }
  void clear() { seconds_.clear(); }

 private:
  std::map<std::string, double> seconds_;
};

}  // namespace kozero
