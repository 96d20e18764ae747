// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_calls.cpp: a library opened and searched.
#include <dlfcn.h>

#include <cstdlib>

#include <kozero/dist/nccl_calls.hpp>

namespace kozero::dist::nccl {
namespace {

constexpr int kOldest = 21800;
constexpr const char* kWanted = "NCCL 2.18 or newer";

std::string version_text(int code) {
  const int scale = code < 10000 ? 1000 : 10000;  // versions up to 2.8 are written 2804
  return std::to_string(code / scale) + "." + std::to_string(code % scale / 100) + "." + std::to_string(code % 100);
}

/// The symbols of one library; the first that is wanted and not there.
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
  symbols.find_if_any("ncclMemAlloc", calls.mem_alloc);
  symbols.find_if_any("ncclMemFree", calls.mem_free);
  symbols.find_if_any("ncclCommRegister", calls.comm_register);
  symbols.find_if_any("ncclCommDeregister", calls.comm_deregister);
}

/// Why what was found cannot be used.
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
    library.obstacle = "NCCL does not open (" + std::string(dlerror()) + "): install " + kWanted +
                       " or name its file in KOZERO_NCCL_LIBRARY";
    return library;
  }
  Symbols symbols(handle);
  find_calls(symbols, library.calls);
  library.is_double = dlsym(handle, "kozero_nccl_double") != nullptr;
  library.obstacle = shortcoming(symbols, file, library);
  return library;
}

}  // namespace kozero::dist::nccl
