// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "nccl_connection.hpp"

namespace kozero::dist {
namespace {

constexpr std::chrono::seconds kLongestCall{2};  // a thread that stays longer in a call of NCCL is stuck there

}  // namespace

nccl::Result NcclConnection::open(int rank, int size, const nccl::UniqueId& id) {
  nccl::Config config;
  const std::lock_guard lock(in_call_);
  return nccl_.comm_init_rank_config(&comm_, size, id, rank, &config);
}

nccl::Result NcclConnection::state() {
  const std::unique_lock lock(in_call_, std::try_to_lock);
  if (!lock) return nccl::kInProgress;
  if (ended_) return nccl::kInternalError;
  nccl::Result state = nccl::kSuccess;
  const nccl::Result asked = nccl_.comm_get_async_error(comm_, &state);
  return asked == nccl::kSuccess ? state : asked;
}

void NcclConnection::abort() {
  if (comm_ == nullptr || ended_.exchange(true)) return;
  const bool free = in_call_.try_lock_for(kLongestCall);
  static_cast<void>(nccl_.comm_abort(comm_));
  if (free) in_call_.unlock();
}

void NcclConnection::close(double timeout_s) {
  if (ended_) return;
  nccl::Result result = nccl::kSuccess;
  {
    const std::lock_guard lock(in_call_);
    result = nccl_.comm_finalize(comm_);
  }
  result = settle(result, timeout_s, [] { return false; });
  if (result == nccl::kSuccess && !ended_.exchange(true)) static_cast<void>(nccl_.comm_destroy(comm_));
}

}  // namespace kozero::dist
