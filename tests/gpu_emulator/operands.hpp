// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// operands.hpp: resolves the operands of a function's instructions: places of registers and constants, addresses of
// variables.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "code.hpp"
#include "report.hpp"
#include "text.hpp"

namespace kozero::gpu_emulator {

inline constexpr std::uint32_t kLaneBytes = kLanes;  // a register of one byte

struct Register {
  std::uint32_t place, bytes;  ///< 0 bytes: a predicate
};

class Operands {
 protected:
  Operands(const Module& module, const std::string& name) : module_(module), code_(std::make_unique<Code>()) {
    code_->name = name;
    code_->register_bytes = 64;  // place 0 means no operand
  }

  [[noreturn]] void fail(const std::string& what) const { stop(what + ", in \"" + text_ + "\" of " + code_->name); }

  std::uint32_t new_place(std::uint32_t bytes, std::uint32_t count = 1) {
    const std::uint32_t place = code_->register_bytes;
    code_->register_bytes += (bytes == 0 ? 64 : std::max(bytes * kLaneBytes, 64U)) * count;
    return place;
  }

  std::uint32_t new_local(std::uint32_t bytes, std::uint32_t alignment) {
    std::uint32_t& size = code_->local_bytes;
    size = (size + std::max(alignment, 8U) - 1) / std::max(alignment, 8U) * std::max(alignment, 8U);
    const std::uint32_t at = size;
    size += bytes;
    return at;
  }

  /// ".reg .b32 %r<10>;" or ".reg .b32 %SP, %tmp;"
  void add_registers(std::string_view statement) {
    const auto percent =
        statement.find('%') == std::string_view::npos ? statement.find_last_of(" \t") + 1 : statement.find('%');
    const std::string_view type = trimmed(statement.substr(4, percent - 4));
    const std::uint32_t bytes = type == ".pred" ? 0 : bytes_of_type(type);
    for (const auto name : parts(statement.substr(percent), ',')) {
      const auto bracket = name.find('<');
      if (bracket == std::string_view::npos) {
        registers_[std::string(name)] = {new_place(bytes), bytes};
        continue;
      }
      const auto count = static_cast<std::uint32_t>(literal(name.substr(bracket + 1, name.find('>') - bracket - 1)));
      files_[std::string(name.substr(0, bracket))] = {new_place(bytes, count), bytes};
    }
  }

  std::optional<Register> find_register(std::string_view name) {
    if (const auto found = registers_.find(std::string(name)); found != registers_.end()) return found->second;
    const auto digit = name.find_last_not_of("0123456789") + 1;
    const auto file = files_.find(std::string(name.substr(0, digit)));
    if (file == files_.end() || digit == name.size()) return std::nullopt;
    const std::uint32_t bytes = file->second.bytes;
    const auto number = static_cast<std::uint32_t>(std::stoul(std::string(name.substr(digit))));
    return Register{file->second.place + number * (bytes == 0 ? 64 : std::max(bytes * kLaneBytes, 64U)), bytes};
  }

  std::uint32_t constant(std::uint64_t value, std::uint32_t bytes) {
    const auto [at, is_new] = constants_.try_emplace({value, bytes}, 0);
    if (is_new) {
      at->second = new_place(bytes);
      code_->constants.push_back({at->second, bytes, value});
    }
    return at->second;
  }

  /// The address of a variable in its own space.
  std::optional<std::uint64_t> symbol(std::string_view text) {
    const std::string name(text);
    if (const auto found = locals_.find(name); found != locals_.end()) return found->second;
    if (const auto found = parameters_.find(name); found != parameters_.end()) return found->second;
    if (const auto found = placed_.find(name); found != placed_.end()) return found->second;
    if (const auto found = module_.shared().find(name); found != module_.shared().end())
      return place_shared(name, found->second);
    if (const auto found = module_.variables().find(name); found != module_.variables().end()) return found->second;
    return std::nullopt;
  }

  std::uint64_t place_shared(const std::string& name, const Module::Shared& declared) {
    if (declared.dynamic) return placed_[name] = kDynamicShared;
    std::uint32_t& size = code_->shared_bytes;
    size = (size + declared.alignment - 1) / declared.alignment * declared.alignment;
    const std::uint32_t at = size;
    size += declared.bytes;
    placed_[name] = at;
    return at;
  }

  std::uint32_t place(std::string_view operand, std::uint32_t bytes) {
    if (operand.starts_with('!')) fail("a negated operand");
    if (const auto found = find_register(operand)) {
      if (found->bytes != bytes) fail("operand " + std::string(operand) + " has another size than its instruction");
      return found->place;
    }
    if (operand.starts_with('%')) {
      const auto [at, is_new] = code_->specials.try_emplace(std::string(operand), 0);
      if (is_new) at->second = new_place(8);
      return at->second;
    }
    if (const auto address = symbol(operand)) return constant(*address, bytes);
    if (operand == "_") return new_place(bytes);
    return bytes == 0 ? constant(literal(operand) != 0 ? 0xFFFFFFFFU : 0, 0) : constant(literal(operand), bytes);
  }

  /// "[%rd1+4]", "[name+8]", "[name]": the register to `a`, its bytes to `b`, the rest to `immediate`. The symbol's
  /// name.
  std::string address(std::string_view operand, Op& op) {
    operand = trimmed(operand.substr(1, operand.size() - 2));
    std::string_view offset;
    if (const auto plus = operand.find('+'); plus != std::string_view::npos) {
      offset = trimmed(operand.substr(plus + 1));
      operand = trimmed(operand.substr(0, plus));
    }
    op.immediate = offset.empty() ? 0 : static_cast<std::int64_t>(literal(offset));
    if (const auto found = find_register(operand)) {
      op.a = found->place;
      op.b = found->bytes;
      return "";
    }
    const auto found = symbol(operand);
    op.immediate += static_cast<std::int64_t>(found ? *found : literal(operand));
    return std::string(operand);
  }

  /// "{%r1, %r2}" or "%r1" to `each`; returns the bytes of a register.
  std::uint32_t each(std::string_view operand, Op& op, std::uint32_t constant_bytes) {
    const bool list = operand.starts_with('{');
    const auto names = list ? parts(operand.substr(1, operand.size() - 2), ',') : std::vector{operand};
    if (names.size() > 4) fail("more than four registers");
    op.count = static_cast<std::uint8_t>(names.size());
    std::uint32_t bytes = constant_bytes;
    for (const auto name : names) {
      if (const auto found = find_register(name)) bytes = found->bytes;
    }
    for (std::size_t i = 0; i < names.size(); ++i) op.each[i] = place(names[i], bytes);
    return bytes;
  }

  const Module& module_;
  std::unique_ptr<Code> code_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint32_t> constants_;
  std::map<std::string, std::uint64_t> parameters_, placed_;

  // Of the function under way.
  std::map<std::string, Register> registers_, files_;
  std::map<std::string, std::uint32_t> locals_;
  std::string text_;
};

}  // namespace kozero::gpu_emulator
