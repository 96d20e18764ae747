// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The KoZeRO authors
// other_clock.cpp: a library for LD_PRELOAD that moves a program's clock by KOZERO_CLOCK_AHEAD_S seconds, as on a host
// whose clock is wrong. It moves the clock of the date only, and the ends of waits that are given by that clock.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/time.h>
#include <cstdlib>
#include <ctime>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::time_t ahead_s() {
  static const std::time_t kAhead = [] {
    const char* text = std::getenv("KOZERO_CLOCK_AHEAD_S");
    return text == nullptr ? 0 : std::atol(text);
  }();
  return kAhead;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  static auto* const kNext = next<int(clockid_t, struct timespec*)>("clock_gettime");
  const int status = kNext(clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += ahead_s();
  return status;
}

int gettimeofday(struct timeval* __restrict now, void* __restrict zone) noexcept {
  static auto* const kNext = next<int(struct timeval*, void*)>("gettimeofday");
  const int status = kNext(now, zone);
  now->tv_sec += ahead_s();
  return status;
}

std::time_t time(std::time_t* now) noexcept {
  static auto* const kNext = next<std::time_t(std::time_t*)>("time");
  const std::time_t moved = kNext(nullptr) + ahead_s();
  if (now != nullptr) *now = moved;
  return moved;
}

int pthread_mutex_timedlock(pthread_mutex_t* __restrict mutex, const struct timespec* __restrict end) noexcept {
  static auto* const kNext = next<int(pthread_mutex_t*, const struct timespec*)>("pthread_mutex_timedlock");
  struct timespec here = *end;
  here.tv_sec -= ahead_s();
  return kNext(mutex, &here);
}

}  // extern "C"
