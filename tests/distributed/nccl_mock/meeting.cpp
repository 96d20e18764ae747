// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// meeting.cpp: a shared-memory board of counters and buffers, and waits that poll it and that a flag can end.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "meeting.hpp"

namespace kozero::test {
namespace {

constexpr std::size_t kPage = 4096;

/// Calls `done` until it returns true. Returns false if `over` becomes true first.
template <class Done, class Over>
bool wait(const Done& done, const Over& over) {
  for (int look = 0; !done(); ++look) {
    if (over()) return false;
    if (look > 100) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

}  // namespace

struct Meeting::Board {
  struct alignas(64) Seat {
    std::atomic<std::uint64_t> meetings;
  };
  std::atomic<int> arrived;
  std::array<Seat, kMostRanks> seats;

  static constexpr std::size_t bytes() { return kPage + 2 * kMostRanks * kBytes; }
};

bool Meeting::create(const std::string& name) {
  const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0) return false;
  const bool sized =
      ftruncate(file, static_cast<off_t>(Board::bytes())) == 0;  // zeros; pages are allocated at the first access
  close(file);
  return sized;
}

Meeting::Meeting(const std::string& name, int rank, int size) : name_(name), rank_(rank), size_(size) {
  static_assert(sizeof(Board) <= kPage);
  const int file = shm_open(name.c_str(), O_RDWR, 0600);
  if (file < 0) return;
  void* memory = mmap(nullptr, Board::bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return;
  board_ = static_cast<Board*>(memory);
  ++board_->arrived;
}

Meeting::~Meeting() {
  if (board_ != nullptr) munmap(board_, Board::bytes());
  if (rank_ == 0) shm_unlink(name_.c_str());
}

bool Meeting::all_came() const { return board_->arrived == size_; }

char* Meeting::buffer(int r, std::uint64_t number) const {
  const std::size_t index = 2 * static_cast<std::size_t>(r) + number % 2;
  return reinterpret_cast<char*>(board_) + kPage + index * kBytes;
}

bool Meeting::meet(const std::atomic<bool>& given_up) {
  board_->seats[static_cast<std::size_t>(rank_)].meetings = ++filled_;
  for (int r = 0; r < size_; ++r) {
    const auto& seat = board_->seats[static_cast<std::size_t>(r)];
    if (!wait([&] { return seat.meetings >= filled_; }, [&] { return given_up.load(); })) return false;
  }
  return true;
}

}  // namespace kozero::test
