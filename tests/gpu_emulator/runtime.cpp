// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// runtime.cpp: the functions of the CUDA runtime that KoZeRO's programs and Kokkos import, for one device.
// CUDA Runtime API 13.0, https://docs.nvidia.com/cuda/cuda-runtime-api/.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "emulated.hpp"
#include "fat_binary.hpp"
#include "launch.hpp"
#include "memory.hpp"
#include "report.hpp"
#include "streams.hpp"
#include "tools.hpp"

using namespace kozero::gpu_emulator;

namespace {

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t failed(cudaError_t code) { return last_error = code; }

Stream* stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return Engine::instance().legacy();
  return reinterpret_cast<Stream*>(handle);
}

struct EventHandle {
  std::shared_ptr<Event> event = std::make_shared<Event>();
};
const std::shared_ptr<Event>& event_of(cudaEvent_t handle) { return reinterpret_cast<EventHandle*>(handle)->event; }

Address address(const void* pointer) { return reinterpret_cast<Address>(pointer); }
bool pageable(const void* pointer) { return !in_device(address(pointer)) && !in_pinned(address(pointer)); }

/// A copy of uninitialized bytes between device arrays is uninitialized.
void copy_now(Address to, Address from, std::size_t bytes) {
  check_range(from, bytes, false, "a copy from");
  check_range(to, bytes, true, "a copy to");
  std::memmove(bytes_at(to), bytes_at(from), bytes);
  if (in_device(to) && in_device(from)) std::memmove(shadow_of(to), shadow_of(from), bytes);
}

/// Reads pageable memory before it returns; if `to` is pageable, returns when the bytes have arrived.
cudaError_t copy(void* to, const void* from, std::size_t bytes, Stream* stream, bool waits) {
  if (bytes == 0) return cudaSuccess;
  Engine& engine = Engine::instance();
  if (pageable(from) && !pageable(to)) {
    std::vector<std::byte> staged(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes);
    engine.enqueue(stream, [to = address(to), staged = std::move(staged)] {
      copy_now(to, address(staged.data()), staged.size());
    });
  } else {
    engine.enqueue(stream, [to = address(to), from = address(from), bytes] { copy_now(to, from, bytes); });
  }
  const bool on_device = in_device(address(to)) && in_device(address(from));
  if (pageable(to) || (waits && !on_device)) engine.synchronize(stream);
  return cudaSuccess;
}

cudaError_t set(void* to, int value, std::size_t bytes, Stream* stream) {
  if (bytes == 0) return cudaSuccess;
  Engine::instance().enqueue(stream, [to = address(to), value, bytes] {
    check_range(to, bytes, true, "a memset");
    std::memset(bytes_at(to), value, bytes);
  });
  if (!in_device(address(to))) Engine::instance().synchronize(stream);
  return cudaSuccess;
}

cudaError_t take(void** to, std::size_t bytes, Kind kind) {
  const Address at = allocate(bytes, kind);
  *to = reinterpret_cast<void*>(at);
  return at == 0 ? failed(cudaErrorMemoryAllocation) : cudaSuccess;
}

/// Both functions that free memory wait for the whole device.
cudaError_t give_back(void* pointer, bool device) {
  if (pointer == nullptr) return cudaSuccess;
  Engine::instance().synchronize_all();
  const Pointed at = allocation_at(address(pointer));
  if (!at.known || at.begin != address(pointer) || (at.kind == Kind::pinned) == device || !release(at.begin)) {
    finding("free", hex(address(pointer)),
            std::string(device ? "cudaFree" : "cudaFreeHost") + " of " + describe(address(pointer), 1) +
                ", where no such allocation begins");
    return failed(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

// Limits of compute capability 8.0.
constexpr std::uint32_t kMostThreads = 1024, kMostDepth = 64, kMostOfYZ = 65535;
constexpr std::uint32_t kSharedWithoutAsking = 48 << 10, kSharedOfBlock = 163 << 10,
                        kSharedOfMultiprocessor = 164 << 10;

/// The limit that a launch exceeds; empty if none.
std::string over_a_limit(const Registered& kernel, const Code& code, dim3 grid, dim3 block, std::size_t shared) {
  const auto threads = static_cast<std::uint64_t>(block.x) * block.y * block.z;
  const auto is = [](const char* what, std::uint64_t is, std::uint64_t most) {
    return std::string(what) + " " + std::to_string(is) + " (accepted: 1 to " + std::to_string(most) + ")";
  };
  if (threads == 0 || threads > std::min(kMostThreads, code.most_threads))
    return is("threads of a block:", threads, std::min(kMostThreads, code.most_threads));
  if (block.z > kMostDepth) return is("blockDim.z:", block.z, kMostDepth);
  if (grid.x == 0 || grid.x > 0x7FFFFFFFU) return is("gridDim.x:", grid.x, 0x7FFFFFFFU);
  if (grid.y == 0 || grid.y > kMostOfYZ) return is("gridDim.y:", grid.y, kMostOfYZ);
  if (grid.z == 0 || grid.z > kMostOfYZ) return is("gridDim.z:", grid.z, kMostOfYZ);
  if (shared + code.shared_bytes >
      std::max<std::size_t>(kSharedWithoutAsking,
                            static_cast<std::size_t>(kernel.most_dynamic_shared) + code.shared_bytes)) {
    return is("bytes of shared memory:", shared + code.shared_bytes, kSharedWithoutAsking);
  }
  return "";
}

cudaError_t launch(Registered* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                   cudaStream_t stream) {
  if (kernel == nullptr) return failed(cudaErrorInvalidDeviceFunction);
  const Code& code = code_of(*kernel);
  auto job = std::make_shared<Launch>();
  job->code = &code;
  job->label = kernel_label(code.name);
  if (const std::string what = over_a_limit(*kernel, code, grid, block, shared); !what.empty()) {
    finding("limit", code.name, job->label + ": " + what);
    return failed(cudaErrorInvalidConfiguration);
  }
  job->grid = {grid.x, grid.y, grid.z};
  job->block = {block.x, block.y, block.z};
  job->dynamic_shared = static_cast<std::uint32_t>(shared);
  job->parameters.resize(code.parameter_bytes + 8);
  for (std::size_t i = 0; i < code.parameters.size(); ++i) {
    std::memcpy(job->parameters.data() + code.parameters[i].offset, arguments[i], code.parameters[i].bytes);
  }
  Engine::instance().enqueue(stream_of(stream), [job] { run(*job); });
  return cudaSuccess;
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

CUresult wait_value(CUstream stream, CUdeviceptr at, std::uint32_t value, unsigned flags) {
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
  const auto* const word = reinterpret_cast<const volatile std::uint32_t*>(bytes_at(at));
  Engine::instance().enqueue_when(stream_of(stream),
                                  [word, value] { return static_cast<std::int32_t>(*word - value) >= 0; });
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// ---- launches ----------------------------------------------------------------------------------------------------

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(registered(function));
  return *kernel == nullptr ? failed(cudaErrorInvalidDeviceFunction) : cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
  return launch(reinterpret_cast<Registered*>(kernel), grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
  return launch(registered(function), grid, block, arguments, shared, stream);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  Registered* const kernel = registered(function);
  if (kernel == nullptr) return failed(cudaErrorInvalidDeviceFunction);
  const Code& code = code_of(*kernel);
  *attributes = {};
  attributes->sharedSizeBytes = code.shared_bytes;
  attributes->localSizeBytes = code.local_bytes;
  attributes->maxThreadsPerBlock = static_cast<int>(code.most_threads);
  attributes->numRegs = 64;  // the most that 1024 threads may use; PTX has no number
  attributes->ptxVersion = attributes->binaryVersion = 80;
  attributes->maxDynamicSharedSizeBytes = kernel->most_dynamic_shared;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  Registered* const kernel = registered(function);
  if (kernel == nullptr) return failed(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value + code_of(*kernel).shared_bytes > kSharedOfBlock) return failed(cudaErrorInvalidValue);
    kernel->most_dynamic_shared = value;
  }
  return cudaSuccess;
}

// ---- memory ------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** to, std::size_t bytes) { return take(to, bytes, Kind::device); }
cudaError_t cudaMallocHost(void** to, std::size_t bytes) { return take(to, bytes, Kind::pinned); }
cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) { return take(to, bytes, Kind::pinned); }
cudaError_t cudaMallocManaged(void** to, std::size_t bytes, unsigned) { return take(to, bytes, Kind::managed); }
cudaError_t cudaFree(void* pointer) { return give_back(pointer, true); }
cudaError_t cudaFreeHost(void* pointer) { return give_back(pointer, false); }
cudaError_t cudaHostGetDevicePointer(void** to, void* host, unsigned) {
  *to = host;
  return pageable(host) ? failed(cudaErrorInvalidValue) : cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return copy(to, from, bytes, Engine::instance().legacy(), true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, bytes, stream_of(stream), false);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                               cudaMemcpyKind) {
  return copy(reinterpret_cast<void*>(variable_of(symbol) + offset), from, bytes, Engine::instance().legacy(), true);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return set(to, value, bytes, Engine::instance().legacy());
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return set(to, value, bytes, stream_of(stream));
}
cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = static_cast<std::size_t>(options().memory_mib) << 20;
  *free = *total - bytes_in_use();
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const Pointed at = allocation_at(address(pointer));
  *attributes = {};
  attributes->type = !at.known                  ? cudaMemoryTypeUnregistered
                     : at.kind == Kind::pinned  ? cudaMemoryTypeHost
                     : at.kind == Kind::managed ? cudaMemoryTypeManaged
                                                : cudaMemoryTypeDevice;
  if (at.known) attributes->devicePointer = const_cast<void*>(pointer);
  if (!at.known || at.kind == Kind::pinned || at.kind == Kind::managed)
    attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

// ---- streams and events ------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  *stream = reinterpret_cast<cudaStream_t>(Engine::instance().create((flags & cudaStreamNonBlocking) == 0, priority));
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Engine::instance().destroy(stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (is_left_out(__func__, __builtin_return_address(0))) return cudaSuccess;
  Engine::instance().synchronize(stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Engine::instance().idle(stream_of(stream)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
  if (is_left_out(__func__, __builtin_return_address(0))) return cudaSuccess;
  Engine::instance().synchronize_all();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (is_left_out(__func__, __builtin_return_address(0))) return cudaSuccess;
  Engine::instance().wait_event(stream_of(stream), event_of(event));
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  Engine::instance().enqueue(
      stream_of(stream), [function, argument] { function(argument); }, true);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new EventHandle);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<EventHandle*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (is_left_out(__func__, __builtin_return_address(0))) return cudaSuccess;
  Engine::instance().record(stream_of(stream), event_of(event));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Engine::instance().reached(event_of(event)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (is_left_out(__func__, __builtin_return_address(0))) return cudaSuccess;
  Engine::instance().synchronize(std::shared_ptr<Event>(event_of(event)));
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (!Engine::instance().reached(event_of(from)) || !Engine::instance().reached(event_of(to)))
    return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(event_of(to)->at - event_of(from)->at).count();
  return cudaSuccess;
}

void kozero_gpu_emulator_enqueue(void* stream, void (*work)(void*), void* argument) {
  Engine::instance().enqueue(stream_of(static_cast<cudaStream_t>(stream)), [work, argument] { work(argument); });
}
void* kozero_gpu_emulator_bytes(void* device, std::size_t bytes, int written) {
  check_range(address(device), bytes, written != 0,
              written != 0 ? "a product writes an array" : "a product reads an array");
  return bytes_at(address(device));
}

int kozero_gpu_emulator_capability() { return options().capability; }
int kozero_gpu_emulator_driver() { return options().driver; }

// ---- the device --------------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : failed(cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated A100");
  properties->totalGlobalMem = static_cast<std::size_t>(options().memory_mib) << 20;
  properties->sharedMemPerBlock = kSharedWithoutAsking;
  properties->sharedMemPerBlockOptin = kSharedOfBlock;
  properties->sharedMemPerMultiprocessor = kSharedOfMultiprocessor;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = kLanes;
  properties->maxThreadsPerBlock = kMostThreads;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  for (int& extent : properties->maxThreadsDim) extent = kMostThreads;
  properties->maxThreadsDim[2] = kMostDepth;
  properties->maxGridSize[0] = 0x7FFFFFFF;
  properties->maxGridSize[1] = properties->maxGridSize[2] = kMostOfYZ;
  properties->totalConstMem = 65536;
  properties->major = options().capability / 10;
  properties->minor = options().capability % 10;
  properties->multiProcessorCount = 108;
  properties->l2CacheSize = 40 << 20;
  properties->concurrentKernels = properties->managedMemory = properties->concurrentManagedAccess = 1;
  properties->unifiedAddressing = properties->canMapHostMemory = properties->asyncEngineCount = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int) {
  std::strncpy(text, "0000:00:00.0", static_cast<std::size_t>(bytes));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = options().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool known = std::strcmp(symbol, "cuStreamWaitValue32") == 0;
  *function = known ? reinterpret_cast<void*>(wait_value) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess                 ? "cudaSuccess"
         : error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
                                              : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorNotReady:
      return "device not ready";
    default:
      return "an error that the emulator does not name";
  }
}

}  // extern "C"
