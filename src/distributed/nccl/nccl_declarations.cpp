// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_declarations.cpp: static_asserts that our declarations of NCCL's calls match NCCL's header. No code runs.
#include <nccl.h>
#include <cstddef>
#include <type_traits>

#include "src/distributed/nccl/nccl_connection.hpp"

namespace kozero::distributed::nccl {
namespace {

/// Arguments with the same calling convention: pointers, or numbers and enumerators of one size, or structs of one
/// size.
template <class Ours, class Theirs>
constexpr bool same_argument =
    sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>&& std::is_class_v<Ours> == std::is_class_v<Theirs>;

template <class... Ours>
struct Arguments {};

template <class Ours, class Theirs>
constexpr bool same_arguments = false;
template <class... Ours, class... Theirs>
requires(sizeof...(Ours) == sizeof...(Theirs)) constexpr bool same_arguments<Arguments<Ours...>, Arguments<Theirs...>> =
    (same_argument<Ours, Theirs> && ...);

template <class OurResult, class... Ours, class TheirResult, class... Theirs>
constexpr bool same(OurResult (*Calls::* /*ours*/)(Ours...), TheirResult (* /*theirs*/)(Theirs...)) {
  return same_argument<OurResult, TheirResult> && same_arguments<Arguments<Ours...>, Arguments<Theirs...>>;
}

static_assert(same(&Calls::get_version, ncclGetVersion));
static_assert(same(&Calls::get_unique_id, ncclGetUniqueId));
static_assert(same(&Calls::comm_init_rank_config, ncclCommInitRankConfig));
static_assert(same(&Calls::comm_finalize, ncclCommFinalize));
static_assert(same(&Calls::comm_destroy, ncclCommDestroy));
static_assert(same(&Calls::comm_abort, ncclCommAbort));
static_assert(same(&Calls::comm_get_async_error, ncclCommGetAsyncError));
static_assert(same(&Calls::get_error_string, ncclGetErrorString));
static_assert(same(&Calls::get_last_error, ncclGetLastError));
static_assert(same(&Calls::group_start, ncclGroupStart));
static_assert(same(&Calls::group_end, ncclGroupEnd));
static_assert(same(&Calls::reduce, ncclReduce));
static_assert(same(&Calls::broadcast, ncclBroadcast));
static_assert(same(&Calls::reduce_scatter, ncclReduceScatter));
static_assert(same(&Calls::all_gather, ncclAllGather));
static_assert(same(&Calls::send, ncclSend));
static_assert(same(&Calls::receive, ncclRecv));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
static_assert(same(&Calls::mem_alloc, ncclMemAlloc));
static_assert(same(&Calls::mem_free, ncclMemFree));
static_assert(same(&Calls::comm_register, ncclCommRegister));
static_assert(same(&Calls::comm_deregister, ncclCommDeregister));
#endif

template <class Ours, class Theirs>
constexpr bool equal(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

constexpr ncclConfig_t kDefaults = NCCL_CONFIG_INITIALIZER;
static_assert(Config{}.magic == kDefaults.magic && Config{}.version == NCCL_VERSION(2, 14, 0));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking) && sizeof(Config) <= sizeof(ncclConfig_t));

static_assert(sizeof(UniqueId) == NCCL_UNIQUE_ID_BYTES);
static_assert(equal(kSuccess, ncclSuccess) && equal(kSystemError, ncclSystemError));
static_assert(equal(kInternalError, ncclInternalError) && equal(kInvalidArgument, ncclInvalidArgument));
static_assert(equal(kInvalidUsage, ncclInvalidUsage) && equal(kInProgress, ncclInProgress));
static_assert(equal(kUint8, ncclUint8) && equal(kFloat32, ncclFloat32) && equal(kSum, ncclSum));

}  // namespace
}  // namespace kozero::distributed::nccl
