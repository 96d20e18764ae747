// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// member.cpp: states of a non-blocking communicator, its worker thread, and the device memory that NCCL would allocate.
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "device_memory.hpp"
#include "member.hpp"

std::atomic<std::int64_t> kozero_nccl_mock_memory = 0;

namespace kozero::test {
namespace {

using namespace distributed::nccl;

constexpr std::int64_t kStartMemory = 3 << 20;
constexpr std::int64_t kCallMemory = 1 << 20;

std::mutex mutex;
std::string last;

}  // namespace

Result error(Result result, const std::string& text) {
  const std::lock_guard lock(mutex);
  last = text;
  return result;
}

std::string last_error() {
  const std::lock_guard lock(mutex);
  return last;
}

Member::Member(const std::string& meeting, RankOf rank_of, bool fails)
    : rank_of_(rank_of), meeting_(meeting, rank_of.rank, rank_of.size), fails_(fails) {
  take(kStartMemory);
}

Member::~Member() {
  while (under_way_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  if (!given_up_) take(-memory_);
}

void Member::take(std::int64_t bytes) {
  memory_ += bytes;
  kozero_nccl_mock_memory += bytes;
}

void Member::connect(const std::string& name) {
  if (names_.insert(name).second) take(kCallMemory);
}

Result Member::ask(std::optional<Call> call) {
  asked_ = std::move(call);
  looks_left_ = kLooks;
  return kInProgress;
}

Result Member::look() {
  if (looks_left_ > 1) --looks_left_;
  if (looks_left_ > 1 || !meeting_.all_came()) return kInProgress;
  looks_left_ = 0;
  if (fails_) error_ = error(kSystemError, "the start fails, as it was told to");
  if (asked_) {
    Stream stream = asked_->stream;
    ++under_way_;
    put_on(stream, run, new Call(std::move(*asked_)));
  }
  asked_.reset();
  return error_;
}

void Member::give_up() { given_up_ = true; }

void Member::run(void* pointer) {
  const std::unique_ptr<Call> call(static_cast<Call*>(pointer));
  Member& member = *call->member;
  if (!member.given_up_ && member.error_ == kSuccess) {
    const std::string different =
        carry_out(member.meeting_, member.rank_of_, call->parts, call->words, member.given_up_);
    if (!different.empty()) member.error_ = error(kInvalidUsage, different);
  }
  --member.under_way_;
}

}  // namespace kozero::test
