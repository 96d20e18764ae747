// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// report.hpp: the emulator's options and its findings. A finding is printed once per place; a process with findings
// ends with status 86, whatever it returned.
//   KOZERO_GPU_EMULATOR="seed=7,late=0,races=0"   settings, separated by commas
#pragma once
#include <cstdint>
#include <string>

namespace kozero::gpu_emulator {

struct Options {
  std::uint64_t seed = 0;     ///< 0: fixed order, and functions rounded to nearest; else the seed of order and rounding
  bool exact = false;         ///< approximate functions are rounded to nearest with any seed
  bool late = true;           ///< streams run late and in any allowed order; otherwise each operation at once
  bool races = true;          ///< report races
  bool uninitialized = true;  ///< report loads of bytes that nothing wrote
  bool leaks = false;         ///< report memory, also pinned, that is not freed at the end
  bool counts = false;        ///< launches and instructions are printed at the end
  std::int64_t memory_mib = 40960;  ///< of the device
  std::int64_t idle_us = 2000;      ///< an operation runs by itself after this time without a wait of the host
  std::int64_t drop = 0;            ///< number of the barrier of KoZeRO's kernels that is omitted, from 1; 0: none
  std::int64_t shift = 0;           ///< number of the load or store whose address is one element too high
  std::int64_t skip = 0;            ///< number of the place in KoZeRO's host code whose waits are omitted
  int capability = 80;              ///< compute capability of the device, times 10
  int driver = 13000;               ///< CUDA version that the driver has
};

const Options& options();

/// Prints "gpu_emulator: KIND: TEXT", unless the same kind was found at the same place before.
void finding(const char* kind, const std::string& place, const std::string& text);

std::int64_t findings();

/// Ends the process with the text, if the emulator cannot continue.
[[noreturn]] void stop(const std::string& text);

/// Splitmix64: a hash; of counted numbers, a sequence of random numbers.
inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>((mixed(state_++) >> 32) * bound >> 32); }

 private:
  std::uint64_t state_;
};

/// "0x7f..."
std::string hex(std::uint64_t value);

/// Instructions and launches so far, of all kernels.
struct Counts {
  std::int64_t instructions = 0, launches = 0, blocks = 0;
  double seconds = 0;  ///< CPU time in kernels
};
Counts& counts();

}  // namespace kozero::gpu_emulator
