// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory.hpp: the device's memory, and the host memory that the device can reach.
//   device   [kDeviceBase, + kArenaBytes): no host code can touch it. The emulator reads and writes the same bytes at
//            kAlias higher.
//   pinned   [kPinnedBase, + kArenaBytes): pinned and managed host memory, for host and device at one address.
// Both have a shadow with the state of each byte. Addresses are not reused, so that an access after a free is found.
// Allocations begin at odd multiples of 256 bytes, with at least 256 bytes between two of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace kozero::gpu_emulator {

using Address = std::uint64_t;

inline constexpr std::uint64_t kArenaBytes = 1ULL << 38;
inline constexpr Address kDeviceBase = 0x100000000000;
inline constexpr Address kPinnedBase = 0x110000000000;
inline constexpr Address kAlias = 0x020000000000;
inline constexpr Address kShadowBase =
    0x140000000000;  ///< of the device; the pinned one's is kPinnedBase - kDeviceBase higher
inline constexpr Address kCellBase = 0x200000000000;  ///< of the device's race cells, kCellRatio bytes per byte
inline constexpr std::uint64_t kCellRatio = 8;

/// Windows of generic addresses, which only kernels use. Each contains 32-bit addresses of the block or the thread.
inline constexpr Address kSharedWindow = 0x0F0000000000;
inline constexpr Address kLocalWindow = 0x0F1000000000;
inline constexpr Address kParamWindow = 0x0F2000000000;
inline constexpr std::uint64_t kWindowBytes = 1ULL << 32;

/// States of a byte in the shadow.
inline constexpr std::uint8_t kAddressable = 1, kInitialized = 3;

enum class Kind : std::uint8_t { device, pinned, managed, variable };

inline bool in_device(Address at) { return at - kDeviceBase < kArenaBytes; }
inline bool in_pinned(Address at) { return at - kPinnedBase < kArenaBytes; }
inline std::uint8_t* shadow_of(Address at) { return reinterpret_cast<std::uint8_t*>(at + (kShadowBase - kDeviceBase)); }

/// The emulator's own address for an address of either arena or of plain host memory.
inline std::byte* bytes_at(Address at) { return reinterpret_cast<std::byte*>(in_device(at) ? at + kAlias : at); }

/// 0 if the device has too little memory left.
Address allocate(std::uint64_t bytes, Kind kind);

/// False if no allocation of this kind begins there.
bool release(Address begin);

/// Sets the program's name of an allocation: Kokkos' label.
void set_label(Address begin, const std::string& label);

struct Pointed {
  bool known = false;
  Address begin = 0;
  std::uint64_t bytes = 0;
  Kind kind = Kind::device;
};
Pointed allocation_at(Address at);

/// "4 bytes at 0x..., 12 bytes after the end of "x" (400 bytes)"
std::string describe(Address at, std::uint64_t bytes);

/// Checks an operation of the host on [at, at + bytes), which may be plain host memory, and marks what it writes.
void check_range(Address at, std::uint64_t bytes, bool writes, const char* operation);

/// From now on an access of the host to device memory stops the program, even if it handles such signals itself.
void watch_host();

std::uint64_t bytes_in_use();
void report_leaks();

}  // namespace kozero::gpu_emulator
