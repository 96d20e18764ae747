// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// streams.cpp: the choice of the next operation, and the host's waits.
#include "streams.hpp"

#include <algorithm>

#include "memory.hpp"

namespace kozero::gpu_emulator {

namespace {
constexpr auto kPoll = std::chrono::microseconds(50);  // for operations that wait for a value in memory
}

Engine& Engine::instance() {
  static auto* const engine = new Engine;  // lives as long as the process
  return *engine;
}

Engine::Engine() : random_(mixed(options().seed)) {
  streams_.push_back(std::make_unique<Stream>());
  std::thread([this] { run(); }).detach();
  std::thread([this] { run_host_functions(); }).detach();
}

Stream* Engine::create(bool waits_for_legacy, int priority) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::make_unique<Stream>());
  streams_.back()->waits_for_legacy = waits_for_legacy;
  streams_.back()->priority = priority;
  return streams_.back().get();
}

/// Operations that are already on the stream still run.
void Engine::destroy(Stream* stream) {
  const std::lock_guard lock(mutex_);
  stream->destroyed = true;
}

void Engine::push(Stream* stream, Operation operation) {
  if (stream->destroyed) stop("work is given to a stream that was destroyed");
  watch_host();
  operation.order = ++last_order_;
  stream->queue.push_back(std::move(operation));
  changed_.notify_all();
}

void Engine::enqueue(Stream* stream, std::function<void()> work, bool of_host) {
  const std::lock_guard lock(mutex_);
  push(stream, {std::move(work), {}, 0, of_host});
}

void Engine::enqueue_when(Stream* stream, std::function<bool()> may_run) {
  const std::lock_guard lock(mutex_);
  push(stream, {{}, std::move(may_run), 0, false});
}

void Engine::record(Stream* stream, const std::shared_ptr<Event>& event) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t version = ++event->recorded;
  push(stream, {[this, event, version] {
                  const std::lock_guard inner(mutex_);
                  event->completed = std::max(event->completed, version);
                  event->at = std::chrono::steady_clock::now();
                },
                {},
                0,
                false});
}

/// Waits for the last record before this call, if there is one.
void Engine::wait_event(Stream* stream, const std::shared_ptr<Event>& event) {
  const std::lock_guard lock(mutex_);
  push(stream, {{}, [event, version = event->recorded] { return event->completed >= version; }, 0, false});
}

bool Engine::reached(const std::shared_ptr<Event>& event) {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return event->completed >= event->recorded;
}

void Engine::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  if (std::this_thread::get_id() == host_functions_thread_)
    stop("a host function of a stream calls CUDA, which is not allowed");
  waits_.push_back(&done);
  changed_.notify_all();
  changed_.wait(lock, done);
  std::erase(waits_, &done);
}

void Engine::synchronize(Stream* stream) {
  std::unique_lock lock(mutex_);
  if (stream->destroyed) stop("the host waits for a stream that was destroyed");
  const std::uint64_t last = last_order_;
  // Work on the legacy stream runs after the work of all streams that synchronize with it.
  wait(lock, [&] {
    return std::ranges::all_of(streams_, [&](const auto& other) {
      const bool concerns = other.get() == stream || (stream == legacy() && other->waits_for_legacy);
      return !concerns || (!other->runs && (other->queue.empty() || other->queue.front().order > last));
    });
  });
}

void Engine::synchronize(const std::shared_ptr<Event>& event) {
  std::unique_lock lock(mutex_);
  const std::uint64_t version = event->recorded;
  wait(lock, [&] { return event->completed >= version; });
}

void Engine::synchronize_all() {
  std::unique_lock lock(mutex_);
  const std::uint64_t last = last_order_;
  wait(lock, [&] {
    return std::ranges::all_of(
        streams_, [&](const auto& s) { return !s->runs && (s->queue.empty() || s->queue.front().order > last); });
  });
}

bool Engine::idle(Stream* stream) {
  const std::lock_guard lock(mutex_);
  return stream->queue.empty() && !stream->runs;
}

bool Engine::may_begin(const Stream& stream) const {
  if (stream.runs || stream.queue.empty()) return false;
  const Operation& next = stream.queue.front();
  const Stream& legacy = *streams_.front();
  const auto before = [&](const Stream& other) {
    return other.runs || (!other.queue.empty() && other.queue.front().order < next.order);
  };
  if (&stream == &legacy) {
    for (const auto& other : streams_) {
      if (other.get() != &stream && other->waits_for_legacy && before(*other)) return false;
    }
  } else if (stream.waits_for_legacy && before(legacy)) {
    return false;
  }
  return !next.may_run || next.may_run();
}

/// The next operation: in order without `late`; else any allowed one, whatever its priority. A stream may starve while
/// others run 1, 16 or 256 operations; then a new order is drawn.
Stream* Engine::choose() {
  std::vector<Stream*> ready;
  for (const auto& stream : streams_) {
    if (may_begin(*stream)) ready.push_back(stream.get());
  }
  if (ready.empty()) return nullptr;
  if (!options().late || options().seed == 0)
    return *std::ranges::min_element(ready, {}, [](const Stream* s) { return s->queue.front().order; });
  if (until_next_draw_-- == 0) {
    until_next_draw_ = 1 << 4 * random_.below(3);
    for (const auto& stream : streams_) stream->turn = random_.below(1 << 16);
  }
  return *std::ranges::min_element(ready, {}, [](const Stream* s) { return s->turn; });
}

/// A finished wait no longer counts, even if its thread has not woken up yet: no more operations run for it.
bool Engine::host_waits() const {
  return std::ranges::any_of(waits_, [](const auto* done) { return !(*done)(); });
}

void Engine::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool any = std::ranges::any_of(streams_, [](const auto& s) { return !s->queue.empty(); });
    if (!any) {
      changed_.wait(lock);
      continue;
    }
    if (options().late)
      changed_.wait_for(lock, std::chrono::microseconds(options().idle_us), [&] { return host_waits(); });
    Stream* const stream = choose();
    if (stream == nullptr) {
      changed_.wait_for(lock, kPoll);
      continue;
    }
    Operation next = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->runs = true;
    if (next.of_host) {
      host_functions_.emplace_back(stream, std::move(next.work));
      changed_.notify_all();
      continue;
    }
    if (next.work) {
      lock.unlock();
      next.work();
      lock.lock();
    }
    finish(stream);
  }
}

void Engine::finish(Stream* stream) {
  stream->runs = false;
  changed_.notify_all();
}

void Engine::run_host_functions() {
  std::unique_lock lock(mutex_);
  host_functions_thread_ = std::this_thread::get_id();
  for (;;) {
    changed_.wait(lock, [&] { return !host_functions_.empty(); });
    auto [stream, function] = std::move(host_functions_.front());
    host_functions_.pop_front();
    lock.unlock();
    if (options().late) std::this_thread::sleep_for(std::chrono::microseconds(200));
    function();
    lock.lock();
    finish(stream);
  }
}

}  // namespace kozero::gpu_emulator
