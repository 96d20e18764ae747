// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include "vain_wait.hpp"

#include "heartbeat.hpp"
#include "whereabouts.hpp"

namespace kozero::dist {
namespace {

constexpr std::size_t kCollectives = 4;  // that are named
constexpr std::size_t kRanks = 8;

}  // namespace

std::string in_seconds(double seconds) {
  const auto text = std::to_string(seconds);
  return text.substr(0, text.find('.') + 2);
}

std::string waited_in_vain(int rank, double seconds, const char* collective, const std::string& whom) {
  return "rank " + std::to_string(rank) + " waited " + in_seconds(seconds) + " s in " + collective + " for " + whom;
}

std::string lost_rank(int rank) {
  const Heartbeat* heartbeat = Heartbeat::running();
  const std::string name = heartbeat == nullptr ? "rank " + std::to_string(rank) : heartbeat->name_of(rank);
  return name + kLostOrTooShort;
}

std::string details(int rank) {
  const std::string begin = "\n[rank " + std::to_string(rank) + "]   ";
  std::string text;
  const std::string newest = whereabouts().newest(kCollectives);
  if (!newest.empty()) text += begin + "newest collectives here: " + newest;
  if (const Heartbeat* heartbeat = Heartbeat::running()) {
    for (const auto& line : heartbeat->places(kRanks)) text += begin + line;
  }
  return text;
}

}  // namespace kozero::dist
