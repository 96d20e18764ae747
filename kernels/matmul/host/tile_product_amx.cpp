// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_product_amx.cpp: the tiles of AMX, in assembly, since the compilers' intrinsics are wrong: they load a
// configuration of 64 bytes but declare 8 to the optimizer, and none declares that it reads or writes memory.
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>

#include "kernels/matmul/host/tile_product_amx.hpp"

namespace kozero::kernels::amx {
namespace {

/// The operand of ldtilecfg: palette 1, and for each tile its rows and the bytes of a row.
struct alignas(64) Configuration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(Configuration) == 64);

constexpr Configuration kConfiguration;

struct HardwareTiles {
  template <int tile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  template <int tile>
  void load(const void* from, std::int64_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(tile) : "memory");
  }
  template <int tile>
  void load_once(const void* from, std::int64_t row_bytes) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(tile) : "memory");
  }
  template <int tile>
  void store(void* to, std::int64_t row_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row_bytes), "i"(tile) : "memory");
  }
  template <int c, int left, int right>
  void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(left), "i"(right));
  }
};

}  // namespace

int refusal() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  static const int refused = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
  return refused;
#else
  return ENOSYS;
#endif
}

void begin() { asm volatile("ldtilecfg %0" : : "m"(kConfiguration)); }

void end() { asm volatile("tilerelease" : : :); }

void product_of_bfloat16(const TileProduct& product) {
  HardwareTiles tiles;
  product_on(tiles, product);
}

}  // namespace kozero::kernels::amx
