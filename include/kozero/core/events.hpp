// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// events.hpp: what this process does and has just done: the main thread's position, a ring of the newest events with
// their times, and seconds by phase of a step.
//   { const Phase phase("evaluation"); ... }                     position().step = 12;      position().unit = 3;
//   { EventScope scope({.name = "all_gather"}); ... }            an event from construction to destruction
//   { auto timer = seconds.phase("forward_backward"); ... }      an event, whose seconds are added to the phase's
//   events().keep(200000); ...; events().kept();                 all events between two calls, for a timeline
// Times are of the host and need no fence: work that a kernel still does on a device is not included. Names are string
// literals. The header includes no Kokkos.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kozero {

/// Where the main thread is. It writes; any thread reads, for reports of ranks that wait in vain.
struct Position {
  std::atomic<const char*> phase{"start-up"};
  std::atomic<std::int64_t> step{0};  ///< 0: before the first
  std::atomic<int> unit{-1};          ///< unit of the newest collective (lookups: behind the table's units); -1: none
};

inline Position& position() {
  static Position here;
  return here;
}

/// Sets the phase's name from construction to destruction.
class Phase {
 public:
  explicit Phase(const char* name) : before_(position().phase.exchange(name)) {}
  ~Phase() { position().phase = before_; }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  const char* before_;
};

/// Something that began, and ended unless `end` is before `begin`.
struct Event {
  using Clock = std::chrono::steady_clock;
  enum class Kind : std::uint8_t {
    phase,
    start,  ///< a collective was started, or an MPI call that blocks; it has no end
    call    ///< the time inside a call for a collective: its start, or a wait
  };

  Kind kind = Kind::phase;
  bool of_saver = false;       ///< of the thread that saves checkpoints; otherwise of the main thread
  const char* name = "";       ///< "forward_backward", "all_gather"
  const char* owner = "";      ///< the communicator, "shm"; of a call: the ranks that it joins; "" for phases, MPI
  std::uint64_t sequence = 0;  ///< of the communicator's collectives, from 1, equal on all ranks; 0: none
  std::int64_t bytes = 0;      ///< of a collective's whole array, or of one rank's values
  // The position at the event's begin, which EventRing fills in.
  const char* phase = "";
  std::int64_t step = 0;
  int unit = -1;
  Clock::time_point begin = {};
  Clock::time_point end = {};
};

/// The newest kCapacity events of this process, in the order in which they began. Nothing is allocated. Any thread may
/// call.
class EventRing {
 public:
  static constexpr std::uint64_t kCapacity = 1024;

  /// Records an event that begins now, or at `now`; returns its number, from 0.
  std::uint64_t begin(Event event, Event::Clock::time_point now = Event::Clock::now()) {
    const Position& here = position();
    event.phase = event.of_saver ? "saving" : here.phase.load(std::memory_order_relaxed);
    event.step = here.step.load(std::memory_order_relaxed);
    event.unit = here.unit.load(std::memory_order_relaxed);
    event.begin = now;
    const std::lock_guard lock(mutex_);
    events_[count_ % kCapacity] = event;
    if (event.kind == Event::Kind::start && !event.of_saver) newest_start_ = event;
    if (most_kept_ > 0) kept_.size() < most_kept_ ? kept_.push_back(event) : void(++lost_);
    return count_++;
  }
  /// The event ends now, if the ring still holds it.
  void end(std::uint64_t number, Event::Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (count_ - number <= kCapacity) events_[number % kCapacity].end = now;
    // An event of before has a number below the first one's, and so an index that is out of range.
    if (number - first_kept_ < kept_.size()) kept_[number - first_kept_].end = now;
  }
  /// From now on all events are kept, at most `most` > 0 of them.
  void keep(std::size_t most) {
    const std::lock_guard lock(mutex_);
    kept_.clear();
    kept_.reserve(most);
    most_kept_ = most;
    first_kept_ = count_;
    lost_ = 0;
  }
  struct Kept {
    std::vector<Event> events;  ///< in the order in which they began
    std::size_t lost;           ///< events beyond the most
  };
  /// The events since keep(); from now on none are kept.
  [[nodiscard]] Kept kept() {
    const std::lock_guard lock(mutex_);
    most_kept_ = 0;
    return {std::exchange(kept_, {}), lost_};
  }
  /// The main thread's newest event of Kind::start, however many others came since.
  [[nodiscard]] std::optional<Event> newest_start() const {
    const std::lock_guard lock(mutex_);
    return newest_start_;
  }
  /// The newest `most` events for which `wanted(event)`, oldest first.
  template <class Wanted>
  [[nodiscard]] std::vector<Event> newest(std::size_t most, const Wanted& wanted) const {
    std::vector<Event> found;
    const std::lock_guard lock(mutex_);
    const std::uint64_t oldest = count_ - std::min(count_, kCapacity);
    for (std::uint64_t i = count_; i > oldest && found.size() < most; --i) {
      if (wanted(events_[(i - 1) % kCapacity])) found.push_back(events_[(i - 1) % kCapacity]);
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::uint64_t count_ = 0;  // of all events
  std::optional<Event> newest_start_;
  std::array<Event, kCapacity> events_;
  std::vector<Event> kept_;  // of all events from number first_kept_ on
  std::size_t most_kept_ = 0, lost_ = 0;
  std::uint64_t first_kept_ = 0;
};

/// This process's ring.
inline EventRing& events() {
  static EventRing ring;
  return ring;
}

/// An event from construction to destruction, and its seconds so far.
class EventScope {
 public:
  explicit EventScope(const Event& event) : number_(events().begin(event, begin_)) {}
  ~EventScope() { events().end(number_, Event::Clock::now()); }
  EventScope(const EventScope&) = delete;
  EventScope& operator=(const EventScope&) = delete;

  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Event::Clock::now() - begin_).count(); }

 private:
  Event::Clock::time_point begin_ = Event::Clock::now();
  std::uint64_t number_;
};

/// A region of Kokkos's tools, such as its connector to NVTX; nothing if none is loaded.
class Region {
 public:
  explicit Region(const char* name);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
};

/// Seconds by phase of a step. The trainer adds them up, and reads and clears the sums once a step. A phase also sets
/// the position's phase, and is a region.
class PhaseSeconds {
 public:
  class Scope {
   public:
    Scope(PhaseSeconds& sums, const char* name)
        : sums_(sums), name_(name), phase_(name), region_(name), event_({.name = name}) {}
    ~Scope() { sums_.seconds_[name_] += event_.seconds(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseSeconds& sums_;
    const char* name_;
    Phase phase_;
    Region region_;
    EventScope event_;
  };

  [[nodiscard]] Scope phase(const char* name) { return Scope(*this, name); }
  [[nodiscard]] const std::map<std::string, double>& seconds() const { return seconds_; }
  void clear() { seconds_.clear(); }

 private:
  std::map<std::string, double> seconds_;
};

}  // namespace kozero
