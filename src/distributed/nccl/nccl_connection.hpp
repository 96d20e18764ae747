// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_connection.hpp: the functions of NCCL, loaded from libnccl.so.2 at run time; one communicator of NCCL; and its
// watch thread. The declarations are our own, so that no build needs NCCL's header and one program runs with and
// without the library. Names and values are NCCL's; nccl_declarations.cpp checks them in a CUDA build that has the
// header. The header includes no Kokkos.
#pragma once
#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include <kozero/distributed/wait_clock.hpp>
#include "src/distributed/nccl/device_stream.hpp"

namespace kozero::distributed::nccl {

using Comm = void*;    // ncclComm_t
using Stream = void*;  // cudaStream_t

struct UniqueId {
  char internal[128];
};

/// ncclConfig_t of NCCL 2.14. By `size` and `version`, newer libraries use defaults for newer fields.
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

/// One pointer per function; those of the last group are nullptr if the library has no memory registration.
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
  std::string version;             ///< "2.28.9"
  bool is_mock = false;            ///< the tests' mock, which accepts host memory and several ranks on one GPU
  std::string unavailable_reason;  ///< "" if the library can be used
};

/// Opens the file that KOZERO_NCCL_LIBRARY names, else libnccl.so.2, for the life of the process.
Library open_library();

}  // namespace kozero::distributed::nccl

namespace kozero::distributed {

/// NCCL's communicator from creation to destruction, which no lost rank can block.
/// The communicator is non-blocking: a long call returns kInProgress and continues in a thread of NCCL until state()
/// changes. Until then NCCL accepts no other call, and the call's work may not be on the stream yet.
///   call  ->  wait_for_result: poll state() until it is not kInProgress, for at most timeout_s  ->  next call ...
/// NCCL does not guard state() against a call in another thread, so one lock guards all calls.
class NcclConnection {
 public:
  /// Makes no communicator yet; open() does.
  explicit NcclConnection(const nccl::Calls& calls) : nccl_(calls) {}
  /// Aborts the communicator unless it was closed.
  ~NcclConnection() { abort(); }
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  /// Starts to make a communicator of the ranks that pass `id`.
  nccl::Result open(int rank, int size, const nccl::UniqueId& id);
  [[nodiscard]] nccl::Comm comm() const { return comm_; }

  /// The lock for calls of NCCL. While locked, no abort comes between two calls of a group.
  [[nodiscard]] std::timed_mutex& calls() { return in_call_; }
  /// The result of the last call, or an asynchronous error. Call without holding calls().
  /// Also kInProgress while another thread holds calls().
  nccl::Result state();
  /// Waits for a result other than kInProgress and returns it. Returns kInProgress after timeout_s, or once
  /// `given_up()`, which is polled, returns true.
  template <class GivenUp>
  nccl::Result wait_for_result(nccl::Result result, double timeout_s, const GivenUp& given_up) {
    Patience patience(timeout_s, Waiting::sleeps);
    while (result == nccl::kInProgress && !given_up() && patience.pause()) result = state();
    return result;
  }

  /// Ends the device's waits. May be called from any thread; only the first call acts.
  void abort();
  /// Waits for work under way, then frees the communicator; aborts it after timeout_s.
  void close(double timeout_s);

 private:
  nccl::Calls nccl_;
  nccl::Comm comm_ = nullptr;
  std::timed_mutex in_call_;
  std::atomic<bool> ended_ = false;
};

/// A thread that watches NCCL's collectives under way, since the host may be waiting for the device meanwhile. A
/// failure is an asynchronous error, or no collective done for timeout_s while one is under way. The thread records the
/// failure, then aborts NCCL, which ends the device's waits, so that code after such a wait finds the failure. Code
/// that is about to use a result must call look() too, since a collective that failed also counts as done.
class NcclWatch {
 public:
  NcclWatch(const nccl::Calls& calls, NcclConnection& connection, int rank, double timeout_s);
  /// Ends the thread.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// Called before a collective is put on the stream.
  void announce(const char* collective);
  /// Called after the collective and the event `done` are on the stream. `done` outlives the watch.
  void add(const StreamEvent& done);
  /// Checks now whether NCCL failed. Call without holding the connection's calls().
  bool look();
  /// Whether the last check found a failure.
  [[nodiscard]] bool failed() const { return failed_; }
  /// The text for an Error, set once failed().
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  struct UnderWay {
    const char* collective;
    const StreamEvent* done;
  };

  void run();
  /// The failure found now; "" if none.
  std::string found();

  nccl::Calls calls_;
  NcclConnection& connection_;
  int rank_;
  double timeout_s_;
  std::mutex mutex_;
  const char* announced_ = "no collective";
  std::deque<UnderWay> under_way_;  // oldest first
  WaitClock without_progress_;      // since the oldest collective became the oldest
  std::string failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace kozero::distributed
