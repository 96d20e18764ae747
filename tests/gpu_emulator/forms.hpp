// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// forms.hpp: the instructions of PTX by their text, "mul.wide.u32": which function executes one, and how many bytes
// each operand has. PTX ISA 9.0, https://docs.nvidia.com/cuda/parallel-thread-execution/. Forms that nvcc does not emit
// for our sources are missing; decode() stops at such a form and prints it.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

#include "code.hpp"

namespace kozero::gpu_emulator {

struct Words {
  std::string_view text;                ///< "ld.global.v4.f32"
  std::vector<std::string_view> words;  ///< {"ld", "global", "v4", "f32"}
  [[nodiscard]] std::string_view base() const { return words.front(); }
  [[nodiscard]] std::string_view type() const { return words.back(); }
  [[nodiscard]] bool has(std::string_view word) const {
    return std::find(words.begin() + 1, words.end(), word) != words.end();
  }
};

struct Form {
  Handler run = nullptr;
  Control control = Control::none;
  std::uint8_t bytes[5] = {};  ///< of each operand; 0: predicate
};

/// Each returns a form without a function if the instruction is not its own.
Form integer_form(const Words& words);
Form float_form(const Words& words);
Form conversion_form(const Words& words);
Form predicate_form(const Words& words);  ///< setp, selp, logic on predicates
Form warp_form(const Words& words);       ///< shfl, vote, bar.warp.sync, match, activemask

/// Functions for ld, st, atom and red; `wide` is the size of the register.
Handler load_function(const Words& words, std::uint32_t wide);
Handler store_function(const Words& words, std::uint32_t wide);
Handler atomic_function(const Words& words);
Handler fence_function();
Handler unpack_function(std::uint32_t bytes);
Handler pack_function(std::uint32_t bytes);

/// The value of a special register that changes while a kernel runs.
Handler clock_function();

inline Form form(Handler run, std::uint8_t d, std::uint8_t a = 0, std::uint8_t b = 0, std::uint8_t c = 0,
                 std::uint8_t e = 0) {
  return {run, Control::none, {d, a, b, c, e}};
}

}  // namespace kozero::gpu_emulator
