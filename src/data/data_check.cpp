// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// data_check.cpp: which rank reads which block, the thread that reads, and the hashes that identify the data.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/data/data_check.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/posix/block_hashes.hpp"

namespace kozero::data {
namespace {

/// A block's term of the data's hash. Sums modulo 2^64 do not depend on which rank read which block.
std::uint64_t term_of(std::int64_t number, const std::string& digits) {
  const std::string text = io::xxh3_128(fmt::format("{} {}", number, digits));
  return std::stoull(text.substr(0, 16), nullptr, 16);
}

std::string sampled_hash_of(const DataCheck::Shards& group) {
  io::RunningHash hash;
  for (const auto& shard : group->shards()) hash.add(shard.sampled_hash());
  hash.add(group->order());
  return hash.digits();
}

/// The term of the order in which shards are read; 0 if each is read once, in its place.
std::uint64_t term_of_order(const DataCheck::Shards& group) {
  const std::string order = group->order();
  return order.empty() ? 0 : term_of(-1, order);
}

constexpr std::size_t kDigits = 32;

/// A hash of each shard's recorded hashes, kDigits per shard; "" if a shard has none.
std::string recorded_by(const DataCheck::Shards& group) {
  std::string digits;
  for (const auto& shard : group->shards()) {
    if (!shard.recorded_hashes()) return "";
    digits += io::xxh3_128(fmt::format("{}", fmt::join(shard.recorded_hashes()->blocks, " ")));
  }
  return digits;
}

/// Gives the calling thread low priority on any CPU, so that training comes first.
void step_back() {
  run_on_any_cpu();
  constexpr int kNice = 10;
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice));
}

}  // namespace

DataCheck::DataCheck(const std::vector<Shards>& groups, distributed::Communicator& comm)
    : groups_(groups), rank_(comm.rank()), num_ranks_(comm.size()) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i] != nullptr && std::find(groups_.begin(), groups_.begin() + static_cast<std::ptrdiff_t>(i),
                                           groups_[i]) == groups_.begin() + static_cast<std::ptrdiff_t>(i)) {
      list_blocks(groups_[i], i == 0);
    }
  }
  distributed::agreed(comm, [&] {
    if (!groups_.empty() && groups_[0] != nullptr) identity_.sampled = sampled_hash_of(groups_[0]);
  });
  const bool differs = comm.broadcast_control(identity_.sampled) != identity_.sampled;
  distributed::agree(comm, differs ? static_cast<int>(Failure::input) : 0,
                     fmt::format("ranks 0 and {} read different training data: give all ranks the same files", rank_));
  if (!identity_.sampled.empty()) identify_by_recorded_hashes(comm);
}

void DataCheck::identify_by_recorded_hashes(distributed::Communicator& comm) {
  const std::string mine = recorded_by(groups_[0]);
  const auto sizes = distributed::from_all_ranks(comm, mine.size());
  if (std::find(sizes.begin(), sizes.end(), std::size_t{0}) != sizes.end()) return;
  const std::string first = comm.broadcast_control(mine);
  distributed::agreed(comm, [&] {
    if (first == mine) return;
    const auto at = std::mismatch(first.begin(), first.end(), mine.begin(), mine.end()).first - first.begin();
    const auto& shard = groups_[0]->shards()[static_cast<std::size_t>(at) / kDigits];
    throw Error(Failure::input,
                fmt::format("{}: ranks 0 and {} find different hashes there: give all ranks the same files",
                            io::hashes_file_of(shard.path()), rank_));
  });
  std::uint64_t sum = term_of_order(groups_[0]);
  for (const auto& [shard, block, number, identifies] : blocks_) {
    if (identifies) sum += term_of(number, shard->recorded_hashes()->blocks[static_cast<std::size_t>(block)]);
  }
  identity_.whole = fmt::format("{:016x}", sum);
}

DataCheck::~DataCheck() { stop_ = true; }

void DataCheck::list_blocks(const Shards& group, bool identifies) {
  for (const auto& shard : group->shards()) {
    for (std::int64_t block = 0; block < shard.num_blocks(); ++block) {
      blocks_.push_back({&shard, block, static_cast<std::int64_t>(blocks_.size()), identifies});
    }
  }
}

std::uint64_t DataCheck::read_blocks() const {
  std::uint64_t sum = 0;
  for (std::size_t i = static_cast<std::size_t>(rank_); i < blocks_.size(); i += static_cast<std::size_t>(num_ranks_)) {
    const std::string digits = blocks_[i].shard->check_block(blocks_[i].block, stop_);
    if (stop_) return 0;
    if (blocks_[i].identifies) sum += term_of(blocks_[i].number, digits);
  }
  return sum;
}

void DataCheck::start() {
  started_ = true;
  reading_ = std::async(std::launch::async, [this] {
    step_back();
    return read_blocks();
  });
}

void DataCheck::look(std::chrono::milliseconds at_most) {
  if (reading_.valid() && reading_.wait_for(at_most) == std::future_status::ready) sum_ = reading_.get();
}

void DataCheck::finish(distributed::Communicator& comm) {
  distributed::agreed(comm, [&] {
    if (!started_) sum_ = read_blocks();
    started_ = true;
    if (reading_.valid()) sum_ = reading_.get();
  });
}

io::DataIdentity DataCheck::identity(distributed::Communicator& comm) {
  if (identity_.sampled.empty() || !identity_.whole.empty()) return identity_;
  struct Report {
    std::uint64_t done;
    std::uint64_t sum;
  };
  std::uint64_t sum = term_of_order(groups_[0]);
  bool all_done = true;
  for (const Report& report : distributed::from_all_ranks(comm, Report{done() ? 1U : 0U, sum_})) {
    all_done = all_done && report.done == 1;
    sum += report.sum;
  }
  if (all_done) identity_.whole = fmt::format("{:016x}", sum);
  return identity_;
}

std::string difference(const io::DataIdentity& saved, const io::DataIdentity& mine) {
  const bool whole = !saved.whole.empty() && !mine.whole.empty();
  const std::string& then = whole ? saved.whole : saved.sampled;
  const std::string& now = whole ? mine.whole : mine.sampled;
  if (!then.empty() && !now.empty() && then != now) return fmt::format("their hash is {} and was {}", now, then);
  const auto text = [](const std::string& part) { return part.empty() ? "none" : part; };
  if (saved.answers != mine.answers) {
    return fmt::format("their answers are {} and were {}", text(mine.answers), text(saved.answers));
  }
  if (saved.mixture == mine.mixture) return "";
  return fmt::format("their mixture is {} and was {}", text(mine.mixture), text(saved.mixture));
}

}  // namespace kozero::data
