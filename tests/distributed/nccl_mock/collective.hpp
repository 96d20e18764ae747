// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// collective.hpp: the data movements of one call, or one group of calls: reductions to a root and broadcasts from a
// root, or messages between two ranks. They run together through the buffers of a meeting. Sums are in rank order.
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
  int root;  ///< for a message: the other rank

  [[nodiscard]] bool is_message() const { return kind == Kind::send || kind == Kind::receive; }
};

struct RankOf {
  int rank;
  int size;
};

/// The description of a group of messages, also of an empty one, so that a rank may have none.
inline constexpr const char* kMessages = "a group of messages";

/// `call` describes the call; it must be equal on all ranks. If not, moves nothing and returns the difference, else
/// returns "". Ends early once `given_up` is true.
std::string carry_out(Meeting& meeting, RankOf rank_of, const std::vector<Part>& parts, const std::string& call,
                      const std::atomic<bool>& given_up);

}  // namespace kozero::test
