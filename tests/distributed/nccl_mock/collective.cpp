// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// collective.cpp: the parts of a call form one sequence of bytes, which is exchanged in windows of one buffer each.
#include <algorithm>
#include <cstring>

#include "collective.hpp"
#include "device_memory.hpp"

namespace kozero::test {
namespace {

constexpr std::size_t kText = 512;  // the call's description, at the beginning of each buffer
constexpr std::size_t kWindow = Meeting::kBytes - kText;

/// The bytes [first, first + count) of a part, at `offset` in the buffers.
struct Overlap {
  std::size_t first, count, offset;
};

template <class Body>
void for_each_overlap(const std::vector<Part>& parts, std::size_t window, const Body& body) {
  std::size_t begin = 0;
  for (const Part& part : parts) {
    const std::size_t first = std::max(begin, window);
    const std::size_t end = std::min(begin + part.bytes, window + kWindow);
    if (first < end) body(part, Overlap{first - begin, end - first, kText + first - window});
    begin += (part.bytes + 7) / 8 * 8;
  }
}

std::size_t extent_of(const std::vector<Part>& parts) {
  std::size_t bytes = 0;
  for (const Part& part : parts) bytes += (part.bytes + 7) / 8 * 8;
  return bytes;
}

std::string difference(const Meeting& meeting, RankOf rank_of) {
  for (int r = 1; r < rank_of.size; ++r) {
    const std::string first = meeting.of(0);
    const std::string other = meeting.of(r);
    if (first != other) return "rank 0 called " + first + ", rank " + std::to_string(r) + " called " + other;
  }
  return "";
}

void add_up(const Meeting& meeting, RankOf rank_of, const Part& part, const Overlap& overlap) {
  std::vector<float> sum(overlap.count / sizeof(float));
  std::memcpy(sum.data(), meeting.of(0) + overlap.offset, overlap.count);
  for (int r = 1; r < rank_of.size; ++r) {
    const auto* addend = reinterpret_cast<const float*>(meeting.of(r) + overlap.offset);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
  }
  to_device(part.receive + overlap.first, sum.data(), overlap.count);
}

/// The list of a rank's messages, at the beginning of its buffer; the messages follow it one after another.
struct Sent {
  struct Message {
    int to;
    std::size_t bytes;
  };
  std::size_t count, extent;
  Message messages[64];
};
constexpr std::size_t kMessageWindow = Meeting::kBytes - kText - sizeof(Sent);

/// Messages from one rank to another are received in the order in which they are sent.
std::string exchange(Meeting& meeting, RankOf rank_of, const std::vector<Part>& parts, const std::string& call,
                     const std::atomic<bool>& given_up) {
  Sent mine{};
  for (const Part& part : parts) {
    if (part.kind != Part::Kind::send) continue;
    mine.messages[mine.count++] = {part.root, part.bytes};
    mine.extent += part.bytes;
  }
  std::size_t window = 0;
  for (std::size_t largest = 1; window < largest; window += kMessageWindow) {
    std::strncpy(meeting.own(), call.c_str(), kText - 1);
    std::memcpy(meeting.own() + kText, &mine, sizeof(Sent));
    char* const data = meeting.own() + kText + sizeof(Sent);
    std::size_t begin = 0;
    for (const Part& part : parts) {
      if (part.kind != Part::Kind::send) continue;
      const std::size_t first = std::max(begin, window), end = std::min(begin + part.bytes, window + kMessageWindow);
      if (first < end) to_host(data + first - window, part.send + first - begin, end - first);
      begin += part.bytes;
    }
    if (!meeting.meet(given_up)) return "";
    const std::string different = difference(meeting, rank_of);
    if (!different.empty()) return different;
    std::vector<std::size_t> next(static_cast<std::size_t>(rank_of.size), 0);  // index of each rank's next message
    std::vector<std::size_t> offset(next.size(), 0);
    Sent theirs{};
    for (int r = 0; r < rank_of.size; ++r) {
      std::memcpy(&theirs, meeting.of(r) + kText, sizeof(Sent));
      largest = std::max(largest, theirs.extent);
    }
    for (const Part& part : parts) {
      if (part.kind != Part::Kind::receive) continue;
      const auto from = static_cast<std::size_t>(part.root);
      std::memcpy(&theirs, meeting.of(part.root) + kText, sizeof(Sent));
      while (next[from] < theirs.count && theirs.messages[next[from]].to != rank_of.rank) {
        offset[from] += theirs.messages[next[from]++].bytes;
      }
      if (next[from] == theirs.count || theirs.messages[next[from]].bytes != part.bytes) {
        return "rank " + std::to_string(rank_of.rank) + " receives " + std::to_string(part.bytes) +
               " bytes from rank " + std::to_string(part.root) + ", which sends no such message";
      }
      const std::size_t first = std::max(offset[from], window);
      const std::size_t end = std::min(offset[from] + part.bytes, window + kMessageWindow);
      const char* source = meeting.of(part.root) + kText + sizeof(Sent);
      if (first < end) to_device(part.receive + first - offset[from], source + first - window, end - first);
      offset[from] += theirs.messages[next[from]++].bytes;
    }
  }
  return "";
}

}  // namespace

std::string carry_out(Meeting& meeting, RankOf rank_of, const std::vector<Part>& parts, const std::string& call,
                      const std::atomic<bool>& given_up) {
  if (call == kMessages) return exchange(meeting, rank_of, parts, call, given_up);
  const std::size_t extent = extent_of(parts);
  for (std::size_t window = 0; window == 0 || window < extent; window += kWindow) {
    std::strncpy(meeting.own(), call.c_str(), kText - 1);
    for_each_overlap(parts, window, [&](const Part& part, const Overlap& overlap) {
      if (part.kind == Part::Kind::broadcast && part.root != rank_of.rank) return;
      to_host(meeting.own() + overlap.offset, part.send + overlap.first, overlap.count);
    });
    if (!meeting.meet(given_up)) return "";
    const std::string different = difference(meeting, rank_of);
    if (!different.empty()) return different;
    for_each_overlap(parts, window, [&](const Part& part, const Overlap& overlap) {
      if (part.kind == Part::Kind::broadcast) {
        to_device(part.receive + overlap.first, meeting.of(part.root) + overlap.offset, overlap.count);
      } else if (part.root == rank_of.rank) {
        add_up(meeting, rank_of, part, overlap);
      }
    });
  }
  return "";
}

}  // namespace kozero::test
