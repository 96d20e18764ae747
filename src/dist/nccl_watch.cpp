// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include <kozero/core/error.hpp>

#include "nccl_watch.hpp"
#include "vain_wait.hpp"

namespace kozero::dist {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{5};

}  // namespace

NcclWatch::NcclWatch(const nccl::Calls& calls, NcclConnection& connection, int rank, double timeout_s)
    : calls_(calls), connection_(connection), rank_(rank), timeout_s_(timeout_s), thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  ending_ = true;
  thread_.join();
}

void NcclWatch::announce(const char* collective) {
  const std::lock_guard lock(mutex_);
  announced_ = collective;
}

void NcclWatch::add(const StreamEvent& done) {
  const std::lock_guard lock(mutex_);
  if (under_way_.empty()) without_progress_.restart();
  under_way_.push_back({announced_, &done});
}

std::string NcclWatch::found() {
  const nccl::Result error = connection_.state();
  const char* collective = under_way_.empty() ? announced_ : under_way_.front().collective;
  if (error != nccl::kSuccess && error != nccl::kInProgress) {
    return "rank " + std::to_string(rank_) + ": NCCL failed in " + collective + ": " + calls_.get_error_string(error) +
           " (" + calls_.get_last_error(connection_.comm()) + ")";
  }
  while (!under_way_.empty() && under_way_.front().done->reached()) {
    under_way_.pop_front();
    without_progress_.restart();
  }
  const bool late = without_progress_.look() > timeout_s_ && !under_way_.empty();
  return late ? waited_in_vain(rank_, timeout_s_, under_way_.front().collective, kAnotherRank) : "";
}

bool NcclWatch::look() {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return true;
    failure_ = found();
    failed_ = !failure_.empty();
  }
  if (failed_) connection_.abort();
  return failed_;
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
