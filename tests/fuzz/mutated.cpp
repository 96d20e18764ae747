// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mutated.cpp: the kinds and places of the damages are chosen by Philox.
#include <array>

#include <kozero/core/random.hpp>

#include "mutated.hpp"

namespace kozero::tests {
namespace {

constexpr std::array<const char*, 8> kNumbers = {"0",     "-1",         "2147483648", "9223372036854775807",
                                                 "1e308", "4294967296", "0.5",        "99999999999999999999"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Replaces the first number after `position`.
void change_number(std::string& bytes, std::size_t position, std::uint32_t choice) {
  const std::size_t first = bytes.find_first_of("0123456789", position);
  if (first == std::string::npos) return;
  std::size_t last = first;
  while (last < bytes.size() && is_digit(bytes[last])) ++last;
  bytes.replace(first, last - first, kNumbers[choice % kNumbers.size()]);
}

void change(std::string& bytes, const Words4& draw) {
  const std::size_t position = draw.x[0] % bytes.size();
  switch (draw.x[1] % 6) {
    case 0:
      bytes[position] = static_cast<char>(bytes[position] ^ (1 << draw.x[2] % 8));
      break;
    case 1:
      bytes[position] = static_cast<char>(draw.x[2]);
      break;
    case 2:
      bytes.erase(position, 1 + draw.x[2] % 8);
      break;
    case 3:
      bytes.insert(position, bytes.substr(draw.x[2] % bytes.size(), 1 + draw.x[3] % 64));
      break;
    case 4:
      bytes.resize(position + 1);
      break;
    default:
      change_number(bytes, position, draw.x[2]);
      break;
  }
}

}  // namespace

std::string mutated(const std::string& honest, const std::string& subject, std::uint64_t round) {
  const auto key = stream_key(7, "mutations of " + subject);
  const std::uint32_t changes = 1 + philox(key, counter_of(round)).x[0] % 3;
  std::string bytes = honest;
  for (std::uint32_t i = 1; i <= changes && !bytes.empty(); ++i) change(bytes, philox(key, counter_of(round, i)));
  return bytes;
}

}  // namespace kozero::tests
