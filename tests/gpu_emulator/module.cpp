// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// module.cpp: the top-level declarations of a module: its variables and functions.
#include <cstring>

#include "code.hpp"
#include "report.hpp"
#include "text.hpp"

namespace kozero::gpu_emulator {
namespace {

/// ".visible .entry name(...) .maxntid 256, 1, 1" or ".func (.param .b64 r) name(...)"
std::string function_name(std::string_view header) {
  const auto entry = header.find(".entry");
  if (entry != std::string_view::npos) {
    const auto begin = entry + 6;
    return std::string(
        trimmed(header.substr(begin, header.find_first_of("(\n", header.find_first_not_of(" \t", begin)) - begin)));
  }
  auto rest = trimmed(header.substr(header.find(".func") + 5));
  if (rest.starts_with('(')) rest = trimmed(rest.substr(rest.find(')') + 1));
  return std::string(trimmed(rest.substr(0, rest.find_first_of("(\n;"))));
}

}  // namespace

Module::Module(std::string ptx) : ptx_(std::move(ptx)) {
  int depth = 0;
  bool in_section = false;
  Function open{};
  for_each_statement(ptx_, [&](std::string_view statement, char end) {
    if (end == '{') {
      if (depth++ > 0) return;
      in_section = statement.starts_with(".section");
      open = {statement, {statement.data() + statement.size(), 0}, statement.find(".entry") != std::string_view::npos};
    } else if (end == '}' && --depth == 0 && !in_section) {
      const auto begin = static_cast<std::size_t>(open.body.data() - ptx_.data());
      open.body = std::string_view(ptx_).substr(ptx_.find('{', begin) + 1);
      open.body = open.body.substr(0, static_cast<std::size_t>(statement.data() + statement.size() - open.body.data()));
      functions_[function_name(open.header)] = open;
    } else if (depth == 0 && end == '\n' && statement.starts_with(".file")) {
      const auto quote = statement.find('"');
      files_[std::stoi(std::string(statement.substr(5)))] =
          statement.substr(quote + 1, statement.find('"', quote + 1) - quote - 1);
    } else if (depth == 0 && end == ';' && statement.find(".func") == std::string_view::npos) {
      add_variable(statement);
    }
  });
}

void Module::add_variable(std::string_view statement) {
  const Declaration declared = declaration(statement);
  if (declared.space == ".shared") {
    shared_[declared.name] = {declared.bytes, declared.alignment, declared.external};
  } else if (declared.space == ".global" || declared.space == ".const") {
    const Address at = allocate(declared.bytes, Kind::variable);
    set_label(at, declared.name);
    variables_[declared.name] = at;
    if (declared.initial.empty()) return;
    const bool list = declared.initial.starts_with('{');
    const std::uint32_t element = bytes_of_type(declared.type);
    std::byte* to = bytes_at(at);
    for (const auto value :
         parts(list ? declared.initial.substr(1, declared.initial.size() - 2) : declared.initial, ',')) {
      const bool symbol = value.starts_with("generic(");
      const std::uint64_t bits = symbol ? variable(std::string(value.substr(8, value.size() - 9))) : literal(value);
      std::memcpy(to, &bits, element);
      to += element;
    }
  }
}

const Code& Module::kernel(const std::string& name) {
  std::unique_ptr<Code>& code = decoded_[name];
  if (code == nullptr) code = decode(*this, name);
  return *code;
}

Address Module::variable(const std::string& name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) stop("PTX has no variable " + name);
  return found->second;
}

const Module::Function* Module::function(const std::string& name) const {
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : &found->second;
}

std::string Module::file(int number) const {
  const auto found = files_.find(number);
  if (found == files_.end()) return "?";
  return found->second;
}

}  // namespace kozero::gpu_emulator
