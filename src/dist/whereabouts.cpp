// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// whereabouts.cpp: the ring of collectives, and the words for it.
#include <algorithm>
#include <cstring>

#include <kozero/core/position.hpp>

#include "whereabouts.hpp"

namespace kozero::dist {
namespace {

template <std::size_t kSize>
void put(std::array<char, kSize>& to, const char* text) {
  std::memcpy(to.data(), text, std::min(std::strlen(text), kSize - 1));
}

std::string bytes_of(std::int64_t bytes) { return " (" + std::to_string(bytes) + " bytes)"; }

std::string words(const Traced& traced) {
  const std::string step = " in step " + std::to_string(traced.step) + ", " + traced.phase;
  if (traced.sequence == 0) return traced.collective + step;
  std::string text = std::to_string(traced.sequence) + " " + traced.collective + " of " + traced.communicator;
  if (traced.unit >= 0 && traced.role == Role::training) text += " for unit " + std::to_string(traced.unit);
  return text + bytes_of(traced.bytes) + step;
}

}  // namespace

std::string place_of(const Beat& beat) {
  std::string text = beat.step > 0 ? "step " + std::to_string(beat.step) + ", " : "";
  text += beat.phase.data();
  if (beat.step > 0 && beat.unit >= 0) text += ", unit " + std::to_string(beat.unit);
  if (beat.ends != 0) return text + ", at its end";
  if (beat.collective[0] == '\0') return text + ", before its first collective";
  text += beat.waits[static_cast<std::size_t>(Role::training)] != 0 ? ", waiting in " : ", working after ";
  if (beat.sequence == 0) return text + beat.collective.data();
  return text + beat.collective.data() + " " + std::to_string(beat.sequence) + " of " + beat.communicator.data() +
         bytes_of(beat.bytes);
}

void Whereabouts::started(Traced collective) {
  const Position& here = position();
  collective.phase = collective.role == Role::saver ? "saving" : here.phase.load(std::memory_order_relaxed);
  collective.step = here.step.load(std::memory_order_relaxed);
  collective.unit = here.unit.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  ring_[num_started_++ % kTraced] = collective;
  if (collective.role == Role::training) newest_of_training_ = collective;
}

Beat Whereabouts::beat() const {
  Beat beat;
  for (std::size_t role = 0; role < kRoles; ++role) {
    beat.waits[role] = waits_[role];
    beat.waits_begun[role] = waits_begun_[role];
  }
  const Position& here = position();
  put(beat.phase, here.phase.load());
  beat.step = here.step;
  beat.unit = here.unit;
  const std::lock_guard lock(mutex_);
  put(beat.collective, newest_of_training_.collective);
  put(beat.communicator, newest_of_training_.communicator);
  beat.sequence = newest_of_training_.sequence;
  beat.bytes = newest_of_training_.bytes;
  return beat;
}

std::string Whereabouts::newest(std::size_t count) const {
  const std::lock_guard lock(mutex_);
  count = std::min({count, kTraced, static_cast<std::size_t>(num_started_)});
  std::string text;
  for (std::uint64_t i = num_started_ - count; i < num_started_; ++i) {
    text += (text.empty() ? "" : "; ") + words(ring_[i % kTraced]);
  }
  return text;
}

Whereabouts::Wait::Wait(Role role) : role_(static_cast<std::size_t>(role)) {
  whereabouts().waits_begun_[role_].fetch_add(1, std::memory_order_relaxed);
  whereabouts().waits_[role_].store(1, std::memory_order_relaxed);
}

Whereabouts::Wait::~Wait() {
  whereabouts().waits_[role_].store(0, std::memory_order_relaxed);
  whereabouts().waits_begun_[role_].fetch_add(1, std::memory_order_relaxed);
}

Whereabouts& whereabouts() {
  static Whereabouts here;
  return here;
}

}  // namespace kozero::dist
