// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include <kozero/core/error.hpp>

#include "group_communicator.hpp"
#include "nccl_watch.hpp"

namespace kozero::dist {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{5};
constexpr std::chrono::seconds kLongestCall{2};  // a thread that stays longer in a call of NCCL is stuck there

}  // namespace

NcclWatch::NcclWatch(const nccl::Calls& calls, nccl::Comm comm, int rank, double timeout_s)
    : calls_(calls), comm_(comm), rank_(rank), timeout_s_(timeout_s), thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  ending_ = true;
  thread_.join();
}

void NcclWatch::add(const char* collective, const StreamEvent& done) {
  const std::lock_guard lock(mutex_);
  if (under_way_.empty()) progress_ = Clock::now();
  under_way_.push_back({collective, &done});
}

std::string NcclWatch::found() {
  nccl::Result error = nccl::kSuccess;
  const nccl::Result asked = calls_.comm_get_async_error(comm_, &error);
  if (asked != nccl::kSuccess) error = asked;
  const char* collective = under_way_.empty() ? "no collective" : under_way_.front().collective;
  if (error != nccl::kSuccess && error != nccl::kInProgress) {
    return "rank " + std::to_string(rank_) + ": NCCL failed in " + collective + ": " + calls_.get_error_string(error) +
           " (" + calls_.get_last_error(comm_) + ")";
  }
  while (!under_way_.empty() && under_way_.front().done->reached()) {
    under_way_.pop_front();
    progress_ = Clock::now();
  }
  const bool late = !under_way_.empty() && std::chrono::duration<double>(Clock::now() - progress_).count() > timeout_s_;
  return late ? waited_in_vain(rank_, timeout_s_, under_way_.front().collective, "another rank") : "";
}

bool NcclWatch::look() {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return true;
    failure_ = found();
    failed_ = !failure_.empty();
  }
  if (failed_) abort();
  return failed_;
}

void NcclWatch::abort() {
  const bool free = in_call_.try_lock_for(kLongestCall);
  static_cast<void>(calls_.comm_abort(comm_));
  if (free) in_call_.unlock();
}

void NcclWatch::run() {
  try {
    enter_device();
    while (!ending_ && !look()) std::this_thread::sleep_for(kBetweenLooks);
  } catch (const Error& error) {  // the device failed: nothing on it goes on
    const std::lock_guard lock(mutex_);
    failure_ = "rank " + std::to_string(rank_) + ": " + error.what();
    failed_ = true;
  }
}

}  // namespace kozero::dist
