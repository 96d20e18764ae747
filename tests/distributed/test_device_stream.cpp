// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_device_stream.cpp: a stream's work runs in order, concurrently with its caller, and after the events it waits
// for.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include "src/distributed/nccl/device_stream.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include <support/nccl_mock.hpp>

#include "nccl_mock/device_memory.hpp"

using namespace kozero;
using namespace kozero::distributed;

namespace {

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

/// Work that appends its letter to one text for all streams.
class Notes {
 public:
  void put(DeviceStream& stream, char letter) {
    works_.push_back({this, letter});
    test::put_on(stream.handle(), write, &works_.back());
  }
  /// Work that ends only after open().
  void put_gate(DeviceStream& stream) { test::put_on(stream.handle(), wait, &open_); }
  void open() {
    open_ = true;
    open_.notify_all();
  }
  [[nodiscard]] std::string text() const { return std::string(letters_.begin(), letters_.begin() + written_); }

 private:
  struct Work {
    Notes* notes;
    char letter;
  };
  static void write(void* pointer) {
    const auto& work = *static_cast<const Work*>(pointer);
    const std::lock_guard lock(work.notes->mutex_);
    work.notes->letters_[static_cast<std::size_t>(work.notes->written_)] = work.letter;
    ++work.notes->written_;
  }
  static void wait(void* pointer) { static_cast<std::atomic<bool>*>(pointer)->wait(false); }

  std::deque<Work> works_;
  std::mutex mutex_;
  std::array<char, 100> letters_{};
  std::atomic<int> written_ = 0;
  std::atomic<bool> open_ = false;
};

void complete(const StreamEvent& event) {
  ComputeStream compute;
  compute.wait_for(event, [] {});
  Device().fence();
}

}  // namespace

TEST_CASE("work on a stream is done in order, and its caller does not wait") {
  Notes notes;
  StreamEvent done;
  CHECK(done.reached());
  DeviceStream stream;
  notes.put_gate(stream);
  notes.put(stream, 'a');
  notes.put(stream, 'b');
  stream.record(done);
  notes.put(stream, 'c');
  nap();
  CHECK_FALSE(done.reached());
  CHECK(notes.text().empty());
  notes.open();
  complete(done);
  CHECK(done.reached());
  CHECK(notes.text().substr(0, 2) == "ab");
}

TEST_CASE("a stream waits for what was recorded on another one") {
  Notes notes;
  StreamEvent first, last;
  DeviceStream one, other;
  notes.put_gate(one);
  notes.put(one, 'a');
  one.record(first);
  notes.put(other, 'b');
  other.wait_for(first);
  notes.put(other, 'c');
  other.record(last);
  nap();
  // On a GPU the mock's one worker does the work of all streams in the order of submission.
  if (kHostIsDevice) CHECK(notes.text() == "b");
  notes.open();
  complete(last);
  CHECK(notes.text().find('a') < notes.text().find('c'));
  CHECK(notes.text().size() == 3);
}

TEST_CASE("a wait means the record that was newest then") {
  if (!kHostIsDevice) return;
  Notes notes;
  StreamEvent event, last;
  DeviceStream one, other;
  one.record(event);
  other.wait_for(event);
  notes.put(other, 'a');
  other.record(last);
  notes.put_gate(one);
  one.record(event);
  complete(last);
  CHECK(notes.text() == "a");
  CHECK_FALSE(event.reached());
  notes.open();
  complete(event);
}

TEST_CASE("what kernels wrote before an event on their stream is there for who waits for it") {
  StreamEvent given;
  ComputeStream compute;
  compute.record(given);
  Notes notes;
  {
    DeviceStream stream;
    stream.wait_for(given);
    notes.put(stream, 'a');
  }
  CHECK(notes.text() == "a");  // a stream's destructor waits for all its work
  if (kHostIsDevice) CHECK(given.reached());
}

TEST_CASE("who waits in the call looks around meanwhile, and may stop waiting") {
  if (!kHostIsDevice) return;
  Notes notes;
  StreamEvent done;
  DeviceStream stream;
  notes.put_gate(stream);
  stream.record(done);
  ComputeStream compute;
  int looks = 0;
  const auto look = [&] {
    if (++looks == 100) throw Error(Failure::communication, "seen");
  };
  CHECK_THROWS_AS(compute.wait_for(done, look), Error);
  CHECK(looks == 100);
  notes.open();
  compute.wait_for(done, [] {});
  CHECK(done.reached());
}

TEST_CASE("injected delays are random, bounded, and change no order") {
  const tests::Variable most("KOZERO_STREAM_DELAY_US", "3000");
  StreamDelays one, other;
  int differ = 0;
  for (int i = 0; i < 100; ++i) {
    const auto us = one.next_us();
    CHECK((us >= 0 && us <= 3000));
    differ += us != other.next_us();
  }
  CHECK(differ > 90);
  Notes notes;
  StreamEvent done;
  DeviceStream stream;
  const auto start = std::chrono::steady_clock::now();
  for (const char letter : {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}) {
    stream.wait_for(done);
    notes.put(stream, letter);
  }
  stream.record(done);
  complete(done);
  CHECK(notes.text() == "abcdefgh");
  CHECK(std::chrono::steady_clock::now() - start > std::chrono::microseconds(3000));
}
