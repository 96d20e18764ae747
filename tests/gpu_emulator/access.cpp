// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// access.cpp: ld, st, atom, red and fences, with the checks of each access: alignment, bounds by allocation, bytes that
// nothing wrote, and races. Two accesses race if one is a store, neither is atomic, and no barrier, bar.warp.sync, or
// fence with an atomic operation orders them. Stores of the value that is already there are allowed.
// An instruction's operands: `a` the address, `b` the bytes of its register (0: none), `immediate` the offset,
// `each` the registers loaded or stored.
#include <bit>
#include <cstdint>

#include "forms.hpp"
#include "launch.hpp"
#include "memory.hpp"
#include "report.hpp"
#include "warp.hpp"

namespace kozero::gpu_emulator {
namespace {

enum class Space { generic, shared, local, parameter };
enum class Access { load, store, atomic };

alignas(16) thread_local std::byte nowhere[64];  // for accesses that are refused

template <class T>
void report(const Warp& w, int lane, const char* kind, Access access, const T& where) {
  const char* verb = access == Access::load ? "loads " : access == Access::store ? "stores " : "updates ";
  finding_at(w, lane, kind, verb + where);
}

bool ordered(const Warp& w, std::uint32_t lane, const Cell& before, bool loaded, bool shared) {
  const Block& block = *w.block;
  if (before.block < block.launch->first_number || before.block == 0) return true;
  if (before.block != block.number) {
    if (shared) return true;
    const Launch::Release& release = block.launch->releases[before.block - block.launch->first_number];
    return release.order != 0 && release.order <= block.acquired &&
           (before.time < release.before || before.thread == release.thread);
  }
  const std::uint32_t thread = w.first_thread + lane, earlier_lane = before.thread - w.first_thread;
  if (before.thread == thread || before.time < block.barrier_at) return true;
  if (earlier_lane >= kLanes) return false;
  return w.synced.after(before.time, lane, earlier_lane) ||
         (loaded && w.shuffled.after(before.time, lane, earlier_lane));
}

std::string thread_name(const Cell& cell, const Block& block) {
  const std::string thread = "thread " + std::to_string(cell.thread);
  return cell.block == block.number ? thread + " of the same block" : thread + " of another block";
}

template <Access kAccess>
void check_race(Warp& w, int lane, Cells* cells, std::uint32_t bytes, bool same_value, bool shared) {
  const Block& block = *w.block;
  const std::uint32_t thread = w.first_thread + static_cast<std::uint32_t>(lane);
  Cell now;
  now.block = block.number;
  now.thread = thread & 1023U;
  now.time = block.time;
  for (std::uint32_t i = 0; i < (bytes + 1) / 2; ++i) {
    Cells& at = cells[i];
    if (!(kAccess == Access::store && same_value) &&
        !ordered(w, static_cast<std::uint32_t>(lane), at.writer, false, shared)) {
      finding_at(w, lane, "race",
                 std::string(kAccess == Access::load ? "loads" : "stores") + " what " + thread_name(at.writer, block) +
                     " stored, and nothing orders the two");
    }
    if (kAccess == Access::store && !same_value &&
        !ordered(w, static_cast<std::uint32_t>(lane), at.reader, true, shared)) {
      finding_at(w, lane, "race",
                 "stores where " + thread_name(at.reader, block) + " loaded, and nothing orders the two");
    }
    (kAccess == Access::store ? at.writer : at.reader) = now;
  }
}

/// The lowest state of these bytes: kInitialized, or less.
inline std::uint8_t weakest(const std::uint8_t* state, std::uint32_t bytes) {
  std::uint8_t all = kInitialized;
  for (std::uint32_t i = 0; i < bytes; ++i) all &= state[i];
  return all;
}

template <Access kAccess>
std::byte* checked(Warp& w, int lane, std::byte* memory, std::uint8_t* state, Cells* cells, std::uint32_t bytes,
                   const std::byte* value, bool plain, bool shared) {
  if (kAccess == Access::load && options().uninitialized && weakest(state, bytes) != kInitialized) {
    finding_at(w, lane, "uninitialized", "loads " + std::to_string(bytes) + " bytes of which some were never written");
    std::memset(state, kInitialized, bytes);
  }
  if (kAccess != Access::load) std::memset(state, kInitialized, bytes);
  if (kAccess != Access::atomic && plain && cells != nullptr && options().races && w.block->time < Block::kLastTime) {
    check_race<kAccess>(w, lane, cells, bytes, kAccess == Access::store && std::memcmp(memory, value, bytes) == 0,
                        shared);
  }
  return memory;
}

template <Access kAccess>
std::byte* in_arena(Warp& w, int lane, Address at, std::uint32_t bytes, const std::byte* value, bool plain) {
  if (!in_device(at) && !in_pinned(at)) {
    report(w, lane, "address", kAccess, hex(at) + ", which is neither device memory nor pinned or managed host memory");
    return nowhere;
  }
  std::uint8_t* const state = shadow_of(at);
  if ((weakest(state, bytes) & kAddressable) == 0) {
    report(w, lane, "bounds", kAccess, describe(at, bytes));
    return nowhere;
  }
  Cells* const cells = in_device(at)
                           ? reinterpret_cast<Cells*>(kCellBase + kCellRatio * ((at - kDeviceBase) & ~std::uint64_t{1}))
                           : nullptr;
  return checked<kAccess>(w, lane, bytes_at(at), state, bytes == 1 ? nullptr : cells, bytes, value, plain, false);
}

template <Access kAccess>
std::byte* in_shared(Warp& w, int lane, std::uint64_t at, std::uint32_t bytes, const std::byte* value, bool plain) {
  const Block& block = *w.block;
  const std::uint64_t fixed = block.shared_bytes - block.dynamic_bytes;
  const std::uint64_t offset = at < kDynamicShared ? at : at - kDynamicShared + fixed;
  const std::uint64_t end = at < kDynamicShared ? fixed : block.shared_bytes;
  if (offset + bytes > end || (weakest(block.shared_state + offset, bytes) & kAddressable) == 0) {
    report(w, lane, "bounds", kAccess,
           std::to_string(bytes) + " bytes at " + hex(at < kDynamicShared ? at : at - kDynamicShared) + " of " +
               (at < kDynamicShared ? "its static" : "its dynamic") + " shared memory (" +
               std::to_string(at < kDynamicShared ? fixed : block.dynamic_bytes) + " bytes)");
    return nowhere;
  }
  return checked<kAccess>(w, lane, block.shared + offset, block.shared_state + offset,
                          bytes == 1 ? nullptr : block.shared_cells + offset / 2, bytes, value, plain, true);
}

std::byte* in_local(Warp& w, int lane, std::uint64_t at, std::uint32_t bytes) {
  const std::uint32_t size = w.block->code->local_bytes;
  if (at + bytes > size) {
    finding_at(w, lane, "bounds",
               "accesses " + std::to_string(bytes) + " bytes at " + hex(at) + " of its local memory (" +
                   std::to_string(size) + " bytes)");
    return nowhere;
  }
  return w.local + static_cast<std::size_t>(lane) * size + at;
}

std::byte* in_parameters(Warp& w, int lane, std::uint64_t at, std::uint32_t bytes) {
  const std::uint32_t size = w.block->code->parameter_bytes;
  if (at + bytes <= size) return const_cast<std::byte*>(w.block->parameters) + at;
  finding_at(w, lane, "bounds",
             "loads " + std::to_string(bytes) + " bytes at " + hex(at) + " of its parameters (" + std::to_string(size) +
                 " bytes)");
  return nowhere;
}

/// The address of a lane's access; `nowhere` after a finding.
template <Access kAccess, Space kSpace>
inline std::byte* target(Warp& w, const Op& op, int lane, std::uint32_t bytes, const std::byte* value = nullptr,
                         bool plain = true) {
  std::uint64_t at = static_cast<std::uint64_t>(op.immediate);
  if (op.b == 8)
    at += w.lanes<std::uint64_t>(op.a)[lane];
  else if (op.b == 4)
    at += w.lanes<std::uint32_t>(op.a)[lane];
  if (at % bytes != 0) report(w, lane, "alignment", kAccess, std::to_string(bytes) + " bytes at " + hex(at));
  if constexpr (kSpace == Space::shared) return in_shared<kAccess>(w, lane, at & 0xFFFFFFFFU, bytes, value, plain);
  if constexpr (kSpace == Space::local) return in_local(w, lane, at, bytes);
  if constexpr (kSpace == Space::parameter) return in_parameters(w, lane, at, bytes);
  if (at - kSharedWindow < kWindowBytes) return in_shared<kAccess>(w, lane, at - kSharedWindow, bytes, value, plain);
  if (at - kLocalWindow < kWindowBytes) return in_local(w, lane, at - kLocalWindow, bytes);
  if (at - kParamWindow < kWindowBytes) return in_parameters(w, lane, at - kParamWindow, bytes);
  return in_arena<kAccess>(w, lane, at, bytes, value, plain);
}

/// T is the type in memory, R the type in a register.
template <class T, class R, Space kSpace, bool kPlain = true>
void load(Warp& w, const Op& op, Mask mask) {
  for (Mask left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const std::byte* from = target<Access::load, kSpace>(w, op, i, sizeof(T) * op.count, nullptr, kPlain);
    for (int k = 0; k < op.count; ++k) {
      T value;
      std::memcpy(&value, from + static_cast<std::size_t>(k) * sizeof(T), sizeof(T));
      w.lanes<R>(op.each[k])[i] = static_cast<R>(value);
    }
  }
}

/// Parameters of a kernel are the same for all lanes, unless a register has their address.
template <class T, class R>
void load_parameter(Warp& w, const Op& op, Mask mask) {
  if (op.b != 0) return load<T, R, Space::parameter>(w, op, mask);
  for (int k = 0; k < op.count; ++k) {
    T value;
    std::memcpy(&value, w.block->parameters + op.immediate + static_cast<std::size_t>(k) * sizeof(T), sizeof(T));
    R* d = w.lanes<R>(op.each[k]);
    for_lanes(mask, [&](int i) { d[i] = static_cast<R>(value); });
  }
}

template <class T, class R, Space kSpace, bool kPlain = true>
void store(Warp& w, const Op& op, Mask mask) {
  for (Mask left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    T values[4];
    for (int k = 0; k < op.count; ++k) values[k] = static_cast<T>(w.lanes<R>(op.each[k])[i]);
    const std::uint32_t bytes = sizeof(T) * op.count;
    std::byte* to = target<Access::store, kSpace>(w, op, i, bytes, reinterpret_cast<const std::byte*>(values), kPlain);
    std::memcpy(to, values, bytes);
  }
}

// ---- atomic operations -------------------------------------------------------------------------------------------

struct Add {
  template <class T>
  T operator()(T old, T b, T) const {
    return old + b;
  }
};
struct Exchange {
  template <class T>
  T operator()(T, T b, T) const {
    return b;
  }
};
struct CompareExchange {
  template <class T>
  T operator()(T old, T b, T c) const {
    return old == b ? c : old;
  }
};
struct Minimum {
  template <class T>
  T operator()(T old, T b, T) const {
    return b < old ? b : old;
  }
};
struct Maximum {
  template <class T>
  T operator()(T old, T b, T) const {
    return b > old ? b : old;
  }
};
struct And {
  template <class T>
  T operator()(T old, T b, T) const {
    return old & b;
  }
};
struct Or {
  template <class T>
  T operator()(T old, T b, T) const {
    return old | b;
  }
};
struct Xor {
  template <class T>
  T operator()(T old, T b, T) const {
    return old ^ b;
  }
};
struct Increment {
  template <class T>
  T operator()(T old, T b, T) const {
    return old >= b ? T{0} : old + 1;
  }
};
struct Decrement {
  template <class T>
  T operator()(T old, T b, T) const {
    return old == 0 || old > b ? b : old - 1;
  }
};

/// After a fence, publishes the accesses of the block before its last barrier, and those of the thread itself.
void synchronize_blocks(Warp& w, int lane) {
  Block& block = *w.block;
  const Launch& launch = *block.launch;
  if (block.fenced)
    launch.releases[block.number - launch.first_number] = {
        block.barrier_at, w.first_thread + static_cast<std::uint32_t>(lane), ++launch.last_order};
  block.acquired = launch.last_order;
}

template <class T, class F, Space kSpace>
void atomic(Warp& w, const Op& op, Mask mask) {
  for (Mask left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    std::byte* at = target<Access::atomic, kSpace>(w, op, i, sizeof(T));
    if (kSpace == Space::generic) synchronize_blocks(w, i);
    T old;
    std::memcpy(&old, at, sizeof(T));
    const T b = w.lanes<T>(op.each[0])[i], c = op.count == 2 ? w.lanes<T>(op.each[1])[i] : T{};
    const T changed = F{}(old, b, c);
    std::memcpy(at, &changed, sizeof(T));
    if (op.d != 0) w.lanes<T>(op.d)[i] = old;
  }
}

template <class T, class F>
Handler atomic_in(const Words& words) {
  return words.has("shared") ? atomic<T, F, Space::shared> : atomic<T, F, Space::generic>;
}

template <class T>
Handler atomic_bits(const Words& words) {
  if (words.has("cas")) return atomic_in<T, CompareExchange>(words);
  if (words.has("exch")) return atomic_in<T, Exchange>(words);
  if (words.has("and")) return atomic_in<T, And>(words);
  if (words.has("or")) return atomic_in<T, Or>(words);
  if (words.has("xor")) return atomic_in<T, Xor>(words);
  if (words.has("inc")) return atomic_in<T, Increment>(words);
  if (words.has("dec")) return atomic_in<T, Decrement>(words);
  return nullptr;
}
template <class T>
Handler atomic_number(const Words& words) {
  if (words.has("add")) return atomic_in<T, Add>(words);
  if (words.has("min")) return atomic_in<T, Minimum>(words);
  if (words.has("max")) return atomic_in<T, Maximum>(words);
  return nullptr;
}

void fence(Warp& w, const Op&, Mask) { w.block->fenced = true; }

// ---- by text -----------------------------------------------------------------------------------------------------

bool is_plain(const Words& words) {
  for (const std::string_view word : {"volatile", "relaxed", "acquire", "release"}) {
    if (words.has(word)) return false;
  }
  return true;
}

template <bool kLoad, class T, class R>
Handler function_in(const Words& words) {
  if (words.has("shared")) return kLoad ? load<T, R, Space::shared> : store<T, R, Space::shared>;
  if (words.has("local")) return kLoad ? load<T, R, Space::local> : store<T, R, Space::local>;
  if (words.has("param")) return kLoad ? load_parameter<T, R> : nullptr;
  if (!is_plain(words)) return kLoad ? load<T, R, Space::generic, false> : store<T, R, Space::generic, false>;
  return kLoad ? load<T, R, Space::generic> : store<T, R, Space::generic>;
}

/// Integers are extended to a wider register, with their sign if they have one.
template <bool kLoad, class T>
Handler function_wide(const Words& words, std::uint32_t wide) {
  using Signed = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  if (wide == 2)
    return sizeof(T) > 2
               ? nullptr
               : function_in<kLoad, T, std::conditional_t<std::is_signed_v<T>, std::int16_t, std::uint16_t>>(words);
  if (wide == 4)
    return sizeof(T) > 4
               ? nullptr
               : function_in<kLoad, T, std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>>(words);
  return function_in<kLoad, T, Signed>(words);
}

template <bool kLoad>
Handler function_of(const Words& words, std::uint32_t wide) {
  const std::string_view type = words.type();
  if (type == "s8") return function_wide<kLoad, std::int8_t>(words, wide);
  if (type.ends_with("8")) return function_wide<kLoad, std::uint8_t>(words, wide);
  if (type == "s16") return function_wide<kLoad, std::int16_t>(words, wide);
  if (type.ends_with("16")) return function_wide<kLoad, std::uint16_t>(words, wide);
  if (type == "s32") return function_wide<kLoad, std::int32_t>(words, wide);
  if (type.ends_with("32")) return function_wide<kLoad, std::uint32_t>(words, wide);
  if (type.ends_with("64")) return function_wide<kLoad, std::uint64_t>(words, wide);
  return nullptr;
}

template <class W, class P>
void unpack(Warp& w, const Op& op, Mask mask) {
  const W* a = w.lanes<W>(op.a);
  for (int k = 0; k < op.count; ++k) {
    P* d = w.lanes<P>(op.each[k]);
    for_lanes(mask, [&](int i) { d[i] = static_cast<P>(a[i] >> (8 * sizeof(P) * static_cast<unsigned>(k))); });
  }
}
template <class W, class P>
void pack(Warp& w, const Op& op, Mask mask) {
  W all[kLanes] = {};
  for (int k = 0; k < op.count; ++k) {
    const P* a = w.lanes<P>(op.each[k]);
    for_lanes(mask, [&](int i) {
      all[i] |= static_cast<W>(static_cast<W>(a[i]) << (8 * sizeof(P) * static_cast<unsigned>(k)));
    });
  }
  W* d = w.lanes<W>(op.d);
  for_lanes(mask, [&](int i) { d[i] = all[i]; });
}

}  // namespace

Handler load_function(const Words& words, std::uint32_t wide) { return function_of<true>(words, wide); }
Handler store_function(const Words& words, std::uint32_t wide) { return function_of<false>(words, wide); }

Handler atomic_function(const Words& words) {
  const std::string_view type = words.type();
  if (type == "f32") return words.has("add") ? atomic_in<float, Add>(words) : nullptr;
  if (type == "f64") return words.has("add") ? atomic_in<double, Add>(words) : nullptr;
  if (type == "s32") return atomic_number<std::int32_t>(words);
  if (type == "s64") return atomic_number<std::int64_t>(words);
  const Handler of_bits = type.ends_with("64") ? atomic_bits<std::uint64_t>(words) : atomic_bits<std::uint32_t>(words);
  if (of_bits != nullptr) return of_bits;
  return type.ends_with("64") ? atomic_number<std::uint64_t>(words) : atomic_number<std::uint32_t>(words);
}

Handler fence_function() { return fence; }

/// mov.b64 {%r1, %r2}, %rd1 and mov.b64 %rd1, {%r1, %r2}.
Handler unpack_function(std::uint32_t bytes) {
  return bytes == 8 ? unpack<std::uint64_t, std::uint32_t> : unpack<std::uint32_t, std::uint16_t>;
}
Handler pack_function(std::uint32_t bytes) {
  return bytes == 8 ? pack<std::uint64_t, std::uint32_t> : pack<std::uint32_t, std::uint16_t>;
}

}  // namespace kozero::gpu_emulator
