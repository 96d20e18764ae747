// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_events.cpp: phases, events with their position and times, and a ring that forgets the oldest events.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>

#include <kozero/core/events.hpp>

using kozero::Event;
using kozero::EventRing;
using kozero::events;
using kozero::EventScope;
using kozero::Phase;
using kozero::PhaseSeconds;
using kozero::position;

namespace {

std::vector<Event> newest(std::size_t most, const std::string& name) {
  return events().newest(most, [&](const Event& event) { return event.name == name; });
}

}  // namespace

TEST_CASE("a phase ends where it began, and nests") {
  CHECK(std::string(position().phase) == "start-up");
  {
    const Phase outer("training");
    {
      const Phase inner("evaluation");
      CHECK(std::string(position().phase) == "evaluation");
    }
    CHECK(std::string(position().phase) == "training");
  }
  CHECK(std::string(position().phase) == "start-up");
}

TEST_CASE("an event has the position at its begin, and its end") {
  const Phase phase("training");
  position().step = 12;
  position().unit = 3;
  {
    const EventScope scope({.kind = Event::Kind::call, .name = "inside", .owner = "shm", .sequence = 7, .bytes = 64});
    position().step = 13;
    const auto open = newest(1, "inside");
    REQUIRE(open.size() == 1);
    CHECK(open[0].end < open[0].begin);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    CHECK(scope.seconds() >= 0.002);
  }
  const auto ended = newest(1, "inside");
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].end - ended[0].begin >= std::chrono::milliseconds(2));
  CHECK(std::string(ended[0].phase) == "training");
  CHECK(ended[0].step == 12);
  CHECK(ended[0].unit == 3);
  CHECK(ended[0].sequence == 7);
  CHECK(ended[0].bytes == 64);
  CHECK(std::string(ended[0].owner) == "shm");
}

TEST_CASE("an event of the thread that saves has no phase of the main thread") {
  const Phase phase("training");
  events().begin({.of_saver = true, .name = "saved"});
  CHECK(std::string(newest(1, "saved").at(0).phase) == "saving");
}

TEST_CASE("the newest events come oldest first, and the ring forgets the oldest") {
  EventRing ring;
  const auto all = [](const Event&) { return true; };
  CHECK(ring.newest(5, all).empty());
  const std::uint64_t first = ring.begin({.name = "first"});
  for (std::uint64_t i = 1; i < EventRing::kCapacity; ++i) ring.begin({.name = "other", .sequence = i});
  CHECK(ring.newest(1, [](const Event& event) { return event.sequence == 0; }).size() == 1);
  const auto three = ring.newest(3, all);
  REQUIRE(three.size() == 3);
  CHECK(three[0].sequence + 2 == three[2].sequence);
  CHECK(three[2].sequence == EventRing::kCapacity - 1);
  ring.begin({.name = "one more", .sequence = EventRing::kCapacity});
  CHECK(ring.newest(1, [](const Event& event) { return event.sequence == 0; }).empty());
  ring.end(first, Event::Clock::now());  // its slot has another event now, which has not ended
  CHECK(ring.newest(1, all)[0].end < ring.newest(1, all)[0].begin);
  CHECK(ring.newest(2 * EventRing::kCapacity, all).size() == EventRing::kCapacity);
}

TEST_CASE("the main thread's newest start is known, however many events came since") {
  EventRing ring;
  CHECK(!ring.newest_start().has_value());
  ring.begin({.kind = Event::Kind::start, .name = "all_gather", .sequence = 5});
  ring.begin({.kind = Event::Kind::start, .of_saver = true, .name = "barrier", .sequence = 9});
  for (std::uint64_t i = 0; i <= EventRing::kCapacity; ++i) ring.begin({.kind = Event::Kind::call, .name = "wait"});
  REQUIRE(ring.newest_start().has_value());
  CHECK(ring.newest_start()->sequence == 5);
}

TEST_CASE("phases add up their seconds, and are events") {
  PhaseSeconds sums;
  for (int i = 0; i < 2; ++i) {
    const auto timer = sums.phase("slept");
    CHECK(std::string(position().phase) == "slept");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(sums.seconds().at("slept") >= 0.002);
  CHECK(newest(5, "slept").size() == 2);
  sums.clear();
  CHECK(sums.seconds().empty());
}
