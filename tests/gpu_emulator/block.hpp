// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// block.hpp: one block of threads. Each warp executes one fragment (lanes at the same instruction) at a time.
// Lanes diverge at branches and converge again at the same instruction, so that a program's result does not depend on
// when they do. With a seed, warps begin in parts, and warps and fragments are chosen at random; otherwise the fragment
// that is furthest behind goes first.
#pragma once
#include <cstdint>
#include <vector>

#include "launch.hpp"
#include "report.hpp"
#include "warp.hpp"

namespace kozero::gpu_emulator {

class BlockRun {
 public:
  explicit BlockRun(const Launch& launch);

  void run(std::uint32_t x, std::uint32_t y, std::uint32_t z, std::uint32_t number, Random& random);

 private:
  struct Barrier {
    std::uint32_t arrived = 0, expected = 0, votes = 0, voters = 0;
  };

  void begin(Random& random);
  void set_special(const std::string& name, std::uint32_t place, Warp& warp);
  bool run_warp(Warp& warp, Random& random);
  void execute(Warp& warp, std::size_t fragment, std::uint32_t limit);
  std::size_t choose(Warp& warp, Random& random, std::uint32_t& limit);

  void branch(Warp& warp, Fragment& fragment, const Op& op, Mask taken);
  void call(Warp& warp, Fragment& fragment, const Op& op);
  void return_from(Warp& warp, Fragment& fragment, const Op& op);
  bool together(Warp& warp, std::size_t index, const Op& op, bool give_up);
  void arrive(Warp& warp, Fragment& fragment, const Op& op);
  void release(std::uint32_t id);
  void report_stuck();
  [[nodiscard]] std::uint32_t alive() const;

  const Launch& launch_;
  const Code& code_;
  Block block_;
  std::vector<Warp> warps_;
  std::vector<std::byte> registers_, local_, shared_;
  std::vector<std::uint8_t> shared_state_, shared_fresh_;
  std::vector<Cells> shared_cells_;
  Barrier barriers_[16];
};

}  // namespace kozero::gpu_emulator
