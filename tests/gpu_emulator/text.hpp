// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// text.hpp: PTX as text: statements, words, declarations.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace kozero::gpu_emulator {

std::string_view trimmed(std::string_view text);

/// The parts between separators outside brackets, each trimmed.
std::vector<std::string_view> parts(std::string_view text, char separator);

/// Calls `each` with every statement of PTX, without its end, and its end: ';', '{', '}', ':' or, for lines such as
/// .loc,
/// '\n'. Braces of operands are part of a statement.
void for_each_statement(std::string_view ptx, const std::function<void(std::string_view, char)>& each);

/// ".shared .align 16 .b8 name[400] = {...}"
struct Declaration {
  std::string space;  ///< ".shared"
  std::string type;   ///< ".b8"
  std::string name;
  std::uint32_t alignment = 0, bytes = 0;
  bool array = false, external = false;
  std::string_view initial;
};
Declaration declaration(std::string_view statement);

std::uint32_t bytes_of_type(std::string_view type);

/// The bits of a literal: 12, -3, 0x1F, 0f3F800000, 0d3FF0000000000000.
std::uint64_t literal(std::string_view text);

}  // namespace kozero::gpu_emulator
