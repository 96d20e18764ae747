// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_connection.hpp: the functions of NCCL, found in libnccl.so.2 at run time, one communicator of NCCL, and its
// watch. Names and values are NCCL's; nccl_declarations.cpp checks them against its header. The communicator is
// non-blocking. The watch thread aborts it where a collective fails or exceeds timeout_s. The header includes no
// Kokkos.
#pragma once
#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include <kozero/dist/wait_clock.hpp>
#include "src/dist/device_stream.hpp"

namespace kozero::dist::nccl {

// The calls of NCCL that KoZeRO makes, found in libnccl.so.2 at run time.
// The declarations are our own, so that no build needs NCCL's header and one program runs with and without the library;
// src/dist/nccl_declarations.cpp holds them to that header where a CUDA build has it. Names and values are NCCL's.

using Comm = void*;    // ncclComm_t
using Stream = void*;  // cudaStream_t

struct UniqueId {
  char internal[128];
};

/// ncclConfig_t as far as NCCL 2.14 had it: `size` and `version` tell newer libraries to take defaults for the rest.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;  ///< no call waits for another rank
};

enum Result : int {
  kSuccess = 0,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kInProgress = 7
};
enum DataType : int { kUint8 = 1, kFloat32 = 7 };
enum ReduceOp : int { kSum = 0 };

/// One pointer a call; those of the last row are nullptr where the library has no such memory.
struct Calls {
  Result (*get_version)(int* code);
  Result (*get_unique_id)(UniqueId* id);
  Result (*comm_init_rank_config)(Comm* comm, int size, UniqueId id, int rank, Config* config);
  Result (*comm_finalize)(Comm comm);
  Result (*comm_destroy)(Comm comm);
  Result (*comm_abort)(Comm comm);
  Result (*comm_get_async_error)(Comm comm, Result* error);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Comm comm);
  Result (*group_start)();
  Result (*group_end)();
  Result (*reduce)(const void* send, void* receive, std::size_t count, DataType, ReduceOp, int root, Comm, Stream);
  Result (*broadcast)(const void* send, void* receive, std::size_t count, DataType, int root, Comm, Stream);
  Result (*reduce_scatter)(const void* send, void* receive, std::size_t each, DataType, ReduceOp, Comm, Stream);
  Result (*all_gather)(const void* send, void* receive, std::size_t each, DataType, Comm, Stream);
  Result (*send)(const void* from, std::size_t count, DataType, int to, Comm, Stream);
  Result (*receive)(void* to, std::size_t count, DataType, int from, Comm, Stream);

  Result (*mem_alloc)(void** memory, std::size_t bytes);
  Result (*mem_free)(void* memory);
  Result (*comm_register)(Comm comm, void* memory, std::size_t bytes, void** handle);
  Result (*comm_deregister)(Comm comm, void* handle);
};

struct Library {
  Calls calls = {};
  std::string version;     ///< "2.28.9"
  bool is_mock = false;    ///< the tests' own, which takes host memory and several ranks on one GPU
  std::string unavailable_reason;    ///< why it cannot be used; empty where it can
};

/// The file that KOZERO_NCCL_LIBRARY names, else libnccl.so.2. It stays open.
Library open_library();

}  // namespace kozero::dist::nccl

namespace kozero::dist {

// NCCL's communicator from its start to its end, which no lost rank can hold up.
// It is of NCCL's non-blocking kind: a call that takes long returns kInProgress and goes on in a thread of NCCL's, and
// state() says when it is over. Until then NCCL takes no other call,
// and what the call puts on the stream may not be there yet.
//   ask  ->  wait_for_result: look at state() until it is no longer kInProgress, for timeout_s at most  ->  ask ...
// NCCL itself does not guard state() against a call in another thread, so all go by one lock.

class NcclConnection {
 public:
  /// Nothing is asked for yet.
  explicit NcclConnection(const nccl::Calls& calls) : nccl_(calls) {}
  /// Aborts what was not closed.
  ~NcclConnection() { abort(); }
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  /// Asks for a communicator of the ranks that pass `id`.
  nccl::Result open(int rank, int size, const nccl::UniqueId& id);
  [[nodiscard]] nccl::Comm comm() const { return comm_; }

  /// Held around calls of NCCL: it is not aborted between two of a group.
  [[nodiscard]] std::timed_mutex& calls() { return in_call_; }
  /// What became of the last call, or an asynchronous error. Outside of calls();
  /// kInProgress too while another thread calls.
  nccl::Result state();
  /// kSuccess, or what ended the wait for it: kInProgress where the time is over, or `given_up`, asked often, is true.
  template <class GivenUp>
  nccl::Result wait_for_result(nccl::Result result, double timeout_s, const GivenUp& given_up) {
    Patience patience(timeout_s, Waiting::sleeps);
    while (result == nccl::kInProgress && !given_up() && patience.pause()) result = state();
    return result;
  }

  /// Ends what the device waits for, once, from any thread.
  void abort();
  /// Lets all that is under way end, and frees; it is aborted where that takes longer than timeout_s.
  void close(double timeout_s);

 private:
  nccl::Calls nccl_;
  nccl::Comm comm_ = nullptr;
  std::timed_mutex in_call_;
  std::atomic<bool> ended_ = false;
};

// A thread that looks after NCCL's collectives under way, since the host may be waiting for the device
// meanwhile. A failure is an asynchronous error, or no collective done for timeout_s while one is under way. It is
// written down first, and then NCCL is aborted, which ends what the device waits for: who comes out of such a wait
// finds the failure. Whoever is about to use a result looks too: a collective that ended by an error is done as well.

class NcclWatch {
 public:
  NcclWatch(const nccl::Calls& calls, NcclConnection& connection, int rank, double timeout_s);
  /// Ends the thread.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// A collective is about to be put on the stream ...
  void announce(const char* collective);
  /// ... and was, and after it `done`, which outlives the watch.
  void add(const StreamEvent& done);
  /// Looks now, outside of the connection's calls(): whether NCCL failed.
  bool look();
  /// What the last look found.
  [[nodiscard]] bool failed() const { return failed_; }
  /// What happened, for an Error, once it failed.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  struct UnderWay {
    const char* collective;
    const StreamEvent* done;
  };

  void run();
  /// Empty where all is well.
  std::string found();

  nccl::Calls calls_;
  NcclConnection& connection_;
  int rank_;
  double timeout_s_;
  std::mutex mutex_;
  const char* announced_ = "no collective";
  std::deque<UnderWay> under_way_;  // the oldest first
  WaitClock without_progress_;      // since the oldest became that
  std::string failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace kozero::dist
