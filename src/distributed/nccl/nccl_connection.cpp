// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_connection.cpp: opens the library and finds its functions; opens, closes and aborts a communicator; watches it.
#include <dlfcn.h>
#include <chrono>
#include <cstdlib>

#include <kozero/core/error.hpp>
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/nccl/nccl_connection.hpp"

namespace kozero::distributed::nccl {

namespace {

constexpr int kOldest = 21800;
constexpr const char* kWanted = "NCCL 2.18 or newer";

std::string version_text(int code) {
  const int scale = code < 10000 ? 1000 : 10000;  // versions up to 2.8 are written 2804
  return std::to_string(code / scale) + "." + std::to_string(code % scale / 100) + "." + std::to_string(code % 100);
}

/// The symbols of one library, and the first requested symbol that it lacks.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <class Call>
  void find(const char* name, Call& call) {
    find_if_any(name, call);
    if (call == nullptr && missing_.empty()) missing_ = name;
  }
  template <class Call>
  void find_if_any(const char* name, Call& call) {
    call = reinterpret_cast<Call>(dlsym(library_, name));
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

void find_calls(Symbols& symbols, Calls& calls) {
  symbols.find("ncclGetVersion", calls.get_version);
  symbols.find("ncclGetUniqueId", calls.get_unique_id);
  symbols.find("ncclCommInitRankConfig", calls.comm_init_rank_config);
  symbols.find("ncclCommFinalize", calls.comm_finalize);
  symbols.find("ncclCommDestroy", calls.comm_destroy);
  symbols.find("ncclCommAbort", calls.comm_abort);
  symbols.find("ncclCommGetAsyncError", calls.comm_get_async_error);
  symbols.find("ncclGetErrorString", calls.get_error_string);
  symbols.find("ncclGetLastError", calls.get_last_error);
  symbols.find("ncclGroupStart", calls.group_start);
  symbols.find("ncclGroupEnd", calls.group_end);
  symbols.find("ncclReduce", calls.reduce);
  symbols.find("ncclBroadcast", calls.broadcast);
  symbols.find("ncclReduceScatter", calls.reduce_scatter);
  symbols.find("ncclAllGather", calls.all_gather);
  symbols.find("ncclSend", calls.send);
  symbols.find("ncclRecv", calls.receive);
  symbols.find_if_any("ncclMemAlloc", calls.mem_alloc);
  symbols.find_if_any("ncclMemFree", calls.mem_free);
  symbols.find_if_any("ncclCommRegister", calls.comm_register);
  symbols.find_if_any("ncclCommDeregister", calls.comm_deregister);
}

/// Why the library cannot be used; "" if it can.
std::string shortcoming(const Symbols& symbols, const std::string& file, Library& library) {
  int code = 0;
  if (library.calls.get_version != nullptr && library.calls.get_version(&code) == kSuccess) {
    library.version = version_text(code);
    if (code < kOldest) return file + " is NCCL " + library.version + ": " + kWanted + " is needed";
  }
  return symbols.missing().empty() ? "" : file + " has no " + symbols.missing() + ": " + kWanted + " is needed";
}

}  // namespace

Library open_library() {
  const char* named = std::getenv("KOZERO_NCCL_LIBRARY");
  const std::string file = named == nullptr ? "libnccl.so.2" : named;
  Library library;
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    library.unavailable_reason = "NCCL does not open (" + std::string(dlerror()) + "): install " + kWanted +
                                 " or name its file in KOZERO_NCCL_LIBRARY";
    return library;
  }
  Symbols symbols(handle);
  find_calls(symbols, library.calls);
  library.is_mock = dlsym(handle, "kozero_nccl_mock") != nullptr;
  library.unavailable_reason = shortcoming(symbols, file, library);
  return library;
}

}  // namespace kozero::distributed::nccl

namespace kozero::distributed {
namespace {

constexpr std::chrono::seconds kLongestCall{2};  // a thread that is longer in a call of NCCL is stuck
constexpr std::chrono::milliseconds kBetweenLooks{5};

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
  result = wait_for_result(result, timeout_s, [] { return false; });
  if (result == nccl::kSuccess && !ended_.exchange(true)) static_cast<void>(nccl_.comm_destroy(comm_));
}

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
  const bool late = without_progress_.look(timeout_s_) > timeout_s_ && !under_way_.empty();
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
  } catch (const Error& error) {  // the device failed: its work will not continue
    const std::lock_guard lock(mutex_);
    failure_ = "rank " + std::to_string(rank_) + ": " + error.what();
    failed_ = true;
  }
}

}  // namespace kozero::distributed
