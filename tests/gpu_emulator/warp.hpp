// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// warp.hpp: the state of an executing block, for its instructions.
#pragma once
#include <bit>
#include <cstddef>
#include <cstring>
#include <vector>

#include "code.hpp"

namespace kozero::gpu_emulator {

/// The last access of a kind to two bytes: the block's number among all that ran, the thread, the block's time.
struct Cell {
  std::uint32_t block = 0;
  std::uint32_t thread : 10 = 0;
  std::uint32_t time : 22 = 0;
};
struct Cells {
  Cell writer, reader;
};
static_assert(sizeof(Cells) == 2 * kCellRatio);

struct Launch;

/// Lanes at one instruction.
struct Fragment {
  Mask lanes = 0;
  std::uint32_t at = 0;
  enum class State : std::uint8_t { runs, waits_for_lanes, waits_for_block } state = State::runs;
};

struct Block;

struct Warp {
  std::byte* registers = nullptr;
  std::byte* local = nullptr;
  Block* block = nullptr;
  std::uint32_t first_thread = 0;
  Mask exited = 0, carry = 0;
  std::uint32_t at = 0;  ///< of the instruction under way, for messages
  std::vector<Fragment> fragments;
  /// Operations that order the accesses of a warp's lanes. bar.warp.sync orders all accesses. A shuffle orders loads
  /// before it with stores after it, since it passes loaded values on, but makes no store visible.
  struct Order {
    std::uint32_t at[kLanes] = {},
                  all_at = 0;  ///< the time of each lane's last operation, and of the last one of all lanes
    Mask with[kLanes] = {};

    void note(Mask lanes, const Mask* members, std::uint32_t now) {
      for (Mask left = lanes; left != 0; left &= left - 1) {
        const int i = std::countr_zero(left);
        at[i] = now;
        with[i] = members[i];
      }
      if (lanes == kAllLanes) all_at = now;
    }
    [[nodiscard]] bool after(std::uint32_t time, std::uint32_t lane, std::uint32_t other) const {
      return time < all_at || (time < at[lane] && (with[lane] >> other & 1U) != 0);
    }
  };
  Order synced, shuffled;

  template <class T>
  T* lanes(std::uint32_t place) {
    return reinterpret_cast<T*>(registers + place);
  }
  Mask& mask(std::uint32_t place) { return *reinterpret_cast<Mask*>(registers + place); }
};

struct Block {
  const Launch* launch = nullptr;
  const Code* code = nullptr;
  std::uint32_t number = 0;  ///< among all blocks of the process
  std::uint32_t x = 0, y = 0, z = 0;
  std::uint32_t threads = 0;
  std::uint32_t time = 1;        ///< raised by each barrier, bar.warp.sync and shuffle
  std::uint32_t barrier_at = 0;  ///< time of the last barrier of the whole block
  std::uint64_t acquired = 0;    ///< releases of other blocks that this block has seen
  bool fenced = false;           ///< a thread executed membar.gl
  std::byte* shared = nullptr;
  std::uint8_t* shared_state = nullptr;
  Cells* shared_cells = nullptr;
  std::uint32_t shared_bytes = 0;  ///< static and dynamic
  std::uint32_t dynamic_bytes = 0;
  const std::byte* parameters = nullptr;

  /// Begins a new time. After the last time that a cell can hold, races are no longer reported.
  std::uint32_t tick() {
    if (time < kLastTime) ++time;
    return time;
  }
  static constexpr std::uint32_t kLastTime = (1U << 22) - 1;
};

/// Applies `f` to each lane of the mask. The loop over all lanes is vectorized.
template <class F>
inline void for_lanes(Mask mask, const F& f) {
  if (mask == kAllLanes) {
#pragma GCC ivdep
    for (int i = 0; i < kLanes; ++i) f(i);
  } else {
    for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
  }
}

/// A mask with the lanes of `within` for which `f` holds.
template <class F>
inline Mask lanes_where(Mask within, const F& f) {
  Mask all = 0;
  if (within == kAllLanes) {
    for (int i = 0; i < kLanes; ++i) all |= static_cast<Mask>(f(i)) << i;
    return all;
  }
  for (Mask left = within; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    all |= static_cast<Mask>(f(i)) << i;
  }
  return all;
}

inline void assign(Mask& to, Mask value, Mask lanes) { to = (to & ~lanes) | (value & lanes); }

/// Prints a finding with the kernel, the instruction and the thread.
void finding_at(const Warp& warp, int lane, const char* kind, const std::string& text);

}  // namespace kozero::gpu_emulator
