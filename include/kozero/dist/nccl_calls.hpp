// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_calls.hpp: the calls of NCCL that KoZeRO makes, found in libnccl.so.2 at run time.
// The declarations are our own, so that no build needs NCCL's header and one program runs with and without the library;
// src/dist/nccl_declarations.cpp holds them to that header where a CUDA build has it. Names and values are NCCL's.
#pragma once
#include <cstddef>
#include <string>

namespace kozero::dist::nccl {

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

  Result (*mem_alloc)(void** memory, std::size_t bytes);
  Result (*mem_free)(void* memory);
  Result (*comm_register)(Comm comm, void* memory, std::size_t bytes, void** handle);
  Result (*comm_deregister)(Comm comm, void* handle);
};

struct Library {
  Calls calls = {};
  std::string version;     ///< "2.28.9"
  bool is_double = false;  ///< the tests' own, which takes host memory and several ranks on one GPU
  std::string obstacle;    ///< why it cannot be used; empty where it can
};

/// The file that KOZERO_NCCL_LIBRARY names, else libnccl.so.2. It stays open.
Library open_library();

}  // namespace kozero::dist::nccl
