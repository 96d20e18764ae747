// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// peer_watch.cpp: the board's file in /dev/shm, its mutexes, and the thread that waits for a peer's mutex.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include <kozero/core/host.hpp>
#include <kozero/distributed/agreement.hpp>
#include "src/run/peer_watch.hpp"

namespace kozero::run {
namespace {

constexpr long kLook = 100'000'000;  // ns between two looks at PeerWatch::stopping_

/// Processes with equal names share a host and its process numbers.
std::string process_space() {
  std::array<char, 64> name{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", name.data(), name.size() - 1);
  return host_name() + "/" + (length > 0 ? std::string(name.data(), static_cast<std::size_t>(length)) : "");
}

/// The path of a new file of that size with allocated pages; "" without room.
std::string new_file(std::size_t bytes) {
  std::string path = "/dev/shm/kozero-XXXXXX";
  const int file = ::mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) return "";
  const bool has_room = ::posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0;
  ::close(file);
  if (has_room) return path;
  ::unlink(path.c_str());
  return "";
}

void* mapped(const std::string& path, std::size_t bytes) {
  const int file = path.empty() ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return memory == MAP_FAILED ? nullptr : memory;
}

void hold(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  pthread_mutex_lock(&mutex);
}

}  // namespace

struct LifeBoard::Memory {
  std::atomic<bool> someone_died;
  std::array<pthread_mutex_t, 1> of_rank;  // as many as the job has ranks
};

LifeBoard::LifeBoard(distributed::Communicator& comm) : rank_(comm.rank()), next_(rank_) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  bytes_ = sizeof(Memory) + ranks * sizeof(pthread_mutex_t);
  const auto spaces = distributed::gather_text(comm, process_space());
  const std::string& mine = spaces[static_cast<std::size_t>(rank_)];
  std::size_t first = 0;
  while (spaces[first] != mine) ++first;
  const bool makes_file = static_cast<int>(first) == rank_;
  const auto files = distributed::gather_text(comm, makes_file ? new_file(bytes_) : "");
  memory_ = static_cast<Memory*>(mapped(files[first], bytes_));
  if (memory_ != nullptr) hold(memory_->of_rank.data()[rank_]);
  const auto held = distributed::from_all_ranks(comm, static_cast<char>(memory_ != nullptr));
  if (makes_file && !files[first].empty()) ::unlink(files[first].c_str());
  if (memory_ == nullptr) return;
  do {
    next_ = (next_ + 1) % comm.size();
  } while (next_ != rank_ &&
           (spaces[static_cast<std::size_t>(next_)] != mine || held[static_cast<std::size_t>(next_)] == 0));
}

LifeBoard::~LifeBoard() {
  if (memory_ == nullptr) return;
  pthread_mutex_unlock(&memory_->of_rank.data()[rank_]);
  ::munmap(memory_, bytes_);
}

LifeBoard::Sign LifeBoard::await(int peer) const {
  struct timespec until {};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += kLook;
  until.tv_sec += until.tv_nsec / 1'000'000'000;
  until.tv_nsec %= 1'000'000'000;
  pthread_mutex_t& mutex = memory_->of_rank.data()[peer];
  const int status = pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until);
  if (status == ETIMEDOUT) return Sign::lives;
  if (status == EOWNERDEAD) return Sign::died;
  if (status == 0) pthread_mutex_unlock(&mutex);
  return Sign::left;
}

bool LifeBoard::claim_first_death() const { return !memory_->someone_died.exchange(true); }

PeerWatch::PeerWatch(const LifeBoard& board, int peer, std::function<void()> died) {
  thread_ = std::thread([this, &board, peer, died = std::move(died)] {
    auto sign = LifeBoard::Sign::lives;
    while (!stopping_ && sign == LifeBoard::Sign::lives) sign = board.await(peer);
    if (sign == LifeBoard::Sign::died && !stopping_ && board.claim_first_death()) died();
  });
}

PeerWatch::~PeerWatch() {
  stopping_ = true;
  thread_.join();
}

}  // namespace kozero::run
