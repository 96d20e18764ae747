// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// collective.hpp: what one call, or one group of calls, moves: reductions to a root and broadcasts from one, or
// messages between two ranks, carried out together through the buffers of a meeting. Sums are in rank order.
#pragma once
#include <string>
#include <vector>

#include "meeting.hpp"

namespace kozero::test {

struct Part {
  enum class Kind { reduce, broadcast, send, receive } kind;
  const char* send;
  char* receive;
  std::size_t bytes;
  int root;  ///< of a message: the other rank

  [[nodiscard]] bool is_message() const { return kind == Kind::send || kind == Kind::receive; }
};

struct RankOf {
  int rank;
  int size;
};

/// What a group of messages is called, an empty one too, so that a rank may have none.
inline constexpr const char* kMessages = "a group of messages";

/// `call` says in words what was called: all ranks must say the same. Returns "", or how they differ; nothing is moved
/// then. Ends early once `given_up` is true.
std::string carry_out(Meeting& meeting, RankOf rank_of, const std::vector<Part>& parts, const std::string& call,
                      const std::atomic<bool>& given_up);

}  // namespace kozero::test
