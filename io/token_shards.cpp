// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/io/token_shards.hpp>

namespace kozero::io {

namespace {

/// Where the system refuses, the shard that cannot be opened is an error of its own.
void allow_open_files(std::size_t count) {
  constexpr rlim_t kOthers = 256;  // logs, checkpoints, MPI's
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + kOthers) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

}  // namespace

TokenShards::TokenShards(const std::vector<std::string>& paths, std::int64_t vocab) {
  if (paths.empty()) throw Error(Failure::deck, "data.tokens: no file given");
  allow_open_files(paths.size());
  std::int64_t end = 0;
  for (const auto& path : paths) {
    shards_.emplace_back(path, vocab);
    end += shards_.back().num_tokens();
    ends_.push_back(end);
  }
}

void TokenShards::read(std::int64_t first, std::span<Token> out) const {
  require(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= num_tokens(),
          "TokenShards: read of tokens outside the sequence");
  auto shard = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  while (!out.empty()) {
    const std::int64_t begin = ends_[shard] - shards_[shard].num_tokens();
    const auto here = std::min(static_cast<std::int64_t>(out.size()), ends_[shard] - first);
    shards_[shard].read(first - begin, out.first(static_cast<std::size_t>(here)));
    out = out.subspan(static_cast<std::size_t>(here));
    first += here;
    ++shard;
  }
}

}  // namespace kozero::io
