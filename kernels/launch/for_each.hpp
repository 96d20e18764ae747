// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// for_each.hpp: one call of a body for each element of a vector or for each row of a matrix, in parallel.
//   for_each_element(space, "kozero::fill", extent, KOKKOS_LAMBDA(std::int64_t i) { y[i] = ...; });
//   assign_elements(space, "kozero::gelu_backward", dx, inputs_of(dy, x),
//                   KOKKOS_LAMBDA(float upper, float v) { return ...; });
//   for_each_row(space, "kozero::rmsnorm_forward", rows, KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
//     const float squares = row_sum(team, columns, [](float v) { return v * v; }, row_of(x, n));
//     assign_row(team, row_of(y, n), columns, [=](float v, float w) { return ...; }, row_of(x, n), gamma.data());
//   });
// Functions get one element of each named array, as a float. Elements and rows must not depend on each other; an output
// may be an input. On a host an index of the dispatch is a block of kElementBlock elements, an inner loop that becomes
// SIMD: the body is copied there, so that no store can change its captures. On a GPU a thread processes one element in
// for_each_element, and a pack (packs.hpp) in assign_elements. A row has one worker, its RowTeam: a host's thread or a
// GPU's warp. A row's sum uses fixed lanes (a host's lane l adds columns l, l + kLanes, ..., a GPU's lane adds packs,
// then the lanes are added in pairs), so its bits depend only on the columns and types. Every dispatch has a label and
// returns without fencing.
#pragma once
#include <cstdint>
#include <cstring>
#include <Kokkos_Core.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include <kozero/core/precision.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/packs.hpp"

#if defined(__AVX512BW__) && !defined(__CUDACC__)
#define KOZERO_ROUNDS_FLOAT16
#include <immintrin.h>
#if defined(__AVX512BF16__)
#define KOZERO_ROUNDS_BFLOAT16
#endif
#endif

namespace kozero::kernels {

/// Floats of a chunk of store_run, which stores numbers computed in float in the type of an array, on one host thread.
///   store_run(out, extent, value):        out[i] = T(value(i))                                  i in [0, extent)
///   store_runs(a, b, extent, values):     a[i] = T(values(i).first),  b[i] = T(values(i).second)
/// value(i) may access element i of any array, outputs included, and no other element that is written. Floats are
/// stored in one SIMD loop. 16-bit results are first stored in a chunk and then rounded together, by the processor's
/// instruction if there is one. It rounds like the type's constructor, except that in bf16 a NaN may keep its upper
/// bits and numbers below 2^-126 become zero, with and without the instruction.
inline constexpr int kChunk = 128;

/// body(c) for c in [0, columns), as SIMD on one host thread: the columns must not depend on each other.
template <class Body>
KOKKOS_INLINE_FUNCTION void simd_loop(std::int64_t columns, const Body& body) {
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDA_ARCH__)
#pragma GCC ivdep
#endif
  for (std::int64_t c = 0; c < columns; ++c) body(c);
}

#if defined(KOZERO_ROUNDS_FLOAT16)
/// out[i] = rounded(in[i]), 16 at a time.
template <class T, class Rounded>
void round_lines(T* out, const float* in, int extent, const Rounded& rounded) {
  constexpr int kLoad = 16;
  for (int i = 0; i < extent; i += kLoad) {
    const auto there = static_cast<__mmask16>(extent - i < kLoad ? (1U << (extent - i)) - 1U : 0xFFFFU);
    const __m256i line = rounded(_mm512_maskz_loadu_ps(there, in + i));
    _mm512_mask_storeu_epi16(out + i, there, _mm512_castsi256_si512(line));
  }
}
#endif

/// out[i] = T(in[i]).
KOKKOS_INLINE_FUNCTION void round_chunk(Bfloat16* out, const float* in, int extent) {
#if defined(KOZERO_ROUNDS_BFLOAT16)
  round_lines(out, in, extent, [](__m512 x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); });
#else
  constexpr std::uint32_t kExponent = 0x7F800000U;
  constexpr std::uint32_t kSign = 0x80000000U;
  for (int i = 0; i < extent; ++i) {
    const auto bits = Kokkos::bit_cast<std::uint32_t>(in[i]);
    out[i] = static_cast<Bfloat16>(Kokkos::bit_cast<float>((bits & kExponent) == 0 ? bits & kSign : bits));
  }
#endif
}
KOKKOS_INLINE_FUNCTION void round_chunk(Float16* out, const float* in, int extent) {
#if defined(KOZERO_ROUNDS_FLOAT16)
  round_lines(out, in, extent,
              [](__m512 x) { return _mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); });
#else
  for (int i = 0; i < extent; ++i) out[i] = static_cast<Float16>(in[i]);
#endif
}

template <class T, class Value>
KOKKOS_INLINE_FUNCTION void store_run(T* out, std::int64_t extent, const Value& value) {
  if constexpr (std::is_same_v<T, float>) {
    simd_loop(extent, [=](std::int64_t i) { out[i] = value(i); });
  } else {
    for (std::int64_t first = 0; first < extent; first += kChunk) {
      float chunk[kChunk];
      const auto here = static_cast<int>(first + kChunk < extent ? kChunk : extent - first);
      simd_loop(here, [&, value](std::int64_t i) { chunk[i] = value(first + i); });
      round_chunk(out + first, chunk, here);
    }
  }
}

/// The values of one element for store_runs.
struct TwoValues {
  float first, second;
};

template <class T, class Values>
KOKKOS_INLINE_FUNCTION void store_runs(T* a, T* b, std::int64_t extent, const Values& values) {
  if constexpr (std::is_same_v<T, float>) {
    simd_loop(extent, [=](std::int64_t i) {
      const TwoValues at = values(i);
      a[i] = at.first;
      b[i] = at.second;
    });
  } else {
    for (std::int64_t first = 0; first < extent; first += kChunk) {
      float chunk_a[kChunk], chunk_b[kChunk];
      const auto here = static_cast<int>(first + kChunk < extent ? kChunk : extent - first);
      simd_loop(here, [&, values](std::int64_t i) {
        const TwoValues at = values(first + i);
        chunk_a[i] = at.first;
        chunk_b[i] = at.second;
      });
      round_chunk(a + first, chunk_a, here);
      round_chunk(b + first, chunk_b, here);
    }
  }
}

inline constexpr std::int64_t kElementBlock = 4096;

/// Whether the space's threads run on the host.
template <class Space>
inline constexpr bool runs_on_host =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible;

/// Calls the body for the elements of block `block`.
template <class Body>
struct ElementBlock {
  Body body;
  std::int64_t extent;

  KOKKOS_FUNCTION void operator()(std::int64_t block) const {
    const Body local = body;
    const std::int64_t first = block * kElementBlock;
    const std::int64_t end = first + kElementBlock < extent ? first + kElementBlock : extent;
    simd_loop(end - first, [=](std::int64_t i) { local(first + i); });
  }
};

/// The inputs of assign_elements: arrays of one type.
template <class T, int kCount>
using InputArrays = Kokkos::Array<const T*, kCount>;

template <class T, class... View>
auto inputs_of(const Vector<const T>& first, const View&... more) {
  return InputArrays<T, 1 + sizeof...(View)>{first.data(), more.data()...};
}

/// out(i) = T(f(in[0](i), in[1](i), ...)) for i in [0, extent).
template <class T, class In, int kInputs, class F>
struct Assignment {
  static constexpr int kCount = kPackOf<T, In>;
  T* out;
  InputArrays<In, kInputs> in;
  F f;
  std::int64_t extent;

  /// The elements of block `block`, on a host.
  template <int... kIndices>
  void assign_block(std::int64_t block, std::integer_sequence<int, kIndices...> /*indices*/) const {
    const std::int64_t first = block * kElementBlock;
    const std::int64_t end = first + kElementBlock < extent ? first + kElementBlock : extent;
    const auto value = [at = in, f = f, first](std::int64_t i) {
      return f(static_cast<float>(at[kIndices][first + i])...);
    };
    store_run(out + first, end - first, value);
  }

  /// The elements of pack `pack`, on a GPU.
  template <int... kIndices>
  KOKKOS_FUNCTION void assign_pack(std::int64_t pack, std::integer_sequence<int, kIndices...> /*indices*/) const {
    const std::int64_t first = pack * kCount;
    const std::int64_t count = first + kCount < extent ? kCount : extent - first;
    assign_share<1>(out + first, count, 0, 1, f, (in[kIndices] + first)...);
  }

  KOKKOS_FUNCTION void operator()(std::int64_t part) const {
    constexpr auto kIndices = std::make_integer_sequence<int, kInputs>();
    KOKKOS_IF_ON_HOST((assign_block(part, kIndices);))
    KOKKOS_IF_ON_DEVICE((assign_pack(part, kIndices);))
  }
};

template <class Space, class Body>
void for_each_element(const Space& space, const std::string& label, std::int64_t extent, const Body& body) {
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>;
  if (extent == 0) return;
  if constexpr (runs_on_host<Space>) {
    const std::int64_t blocks = (extent + kElementBlock - 1) / kElementBlock;
    Kokkos::parallel_for(label, Policy(space, 0, blocks), ElementBlock<Body>{body, extent});
  } else {
    Kokkos::parallel_for(label, Policy(space, 0, extent), body);
  }
}

template <class Space, class T, class In, std::size_t kInputs, class F>
void assign_elements(const Space& space, const std::string& label, Vector<T> out,
                     const Kokkos::Array<const In*, kInputs>& in, const F& f) {
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>;
  using Assigned = Assignment<T, In, static_cast<int>(kInputs), F>;
  const auto extent = static_cast<std::int64_t>(out.extent(0));
  const std::int64_t part = runs_on_host<Space> ? kElementBlock : Assigned::kCount;
  if (extent == 0) return;
  Kokkos::parallel_for(label, Policy(space, 0, (extent + part - 1) / part), Assigned{out.data(), in, f, extent});
}

/// The worker of a row, an opaque argument for bodies.
template <class Space>
using RowTeam = typename Kokkos::TeamPolicy<Space>::member_type;

inline constexpr int kLanes = 32;        ///< partial sums of a row: a warp, or two to four SIMD registers
inline constexpr int kRowsPerBlock = 4;  ///< rows of a thread block on a GPU

/// A whole team as the worker of one row, for few and long rows, with which one warp per row would leave a GPU idle.
template <class Team>
struct WholeTeam {
  const Team& team;
};

/// The columns of a row, distributed over the lanes of its worker.
template <class Team>
KOKKOS_INLINE_FUNCTION auto columns_of(const Team& team, std::int64_t columns) {
  return Kokkos::ThreadVectorRange(team, columns);
}
template <class Team>
KOKKOS_INLINE_FUNCTION auto columns_of(const WholeTeam<Team>& whole, std::int64_t columns) {
  return Kokkos::TeamVectorRange(whole.team, columns);
}

/// The number of lanes.
template <class Team>
KOKKOS_INLINE_FUNCTION std::int64_t lanes_of(const Team& /*team*/) {
  return kLanes;
}
template <class Team>
KOKKOS_INLINE_FUNCTION std::int64_t lanes_of(const WholeTeam<Team>& whole) {
  return std::int64_t{kLanes} * whole.team.team_size();
}

/// A barrier of the row's lanes: afterwards all lanes see the earlier stores of each.
template <class Team>
KOKKOS_INLINE_FUNCTION void meet(const WholeTeam<Team>& whole) {
  whole.team.team_barrier();
}

/// body() on one lane of the row's worker.
template <class Team, class Body>
KOKKOS_INLINE_FUNCTION void once_per_row(const Team& team, const Body& body) {
  Kokkos::single(Kokkos::PerThread(team), body);
}
template <class Team, class Body>
KOKKOS_INLINE_FUNCTION void once_per_row(const WholeTeam<Team>& whole, const Body& body) {
  Kokkos::single(Kokkos::PerTeam(whole.team), body);
}

/// The first element of row n.
template <class View>
KOKKOS_INLINE_FUNCTION auto row_of(const View& matrix, std::int64_t n) {
  return matrix.data() + n * static_cast<std::int64_t>(matrix.extent(1));
}

/// Calls body(team, n) for the rows of a team.
template <class Space, class Body>
struct RowsOfTeam {
  Body body;
  std::int64_t rows;

  KOKKOS_FUNCTION void operator()(const RowTeam<Space>& team) const {
    const std::int64_t n = static_cast<std::int64_t>(team.league_rank()) * team.team_size() + team.team_rank();
    if (n < rows) body(team, n);
  }
};

template <class Space, class Body>
void for_each_row(const Space& space, const std::string& label, std::int64_t rows, const Body& body) {
  if (rows == 0) return;
  constexpr int kTeam = runs_on_host<Space> ? 1 : kRowsPerBlock;
  constexpr int kVector = runs_on_host<Space> ? 1 : kLanes;
  const std::int64_t teams = (rows + kTeam - 1) / kTeam;
  Kokkos::parallel_for(label, Kokkos::TeamPolicy<Space>(space, static_cast<int>(teams), kTeam, kVector),
                       RowsOfTeam<Space, Body>{body, rows});
}

/// The same with a WholeTeam for each row: its lanes meet in each row_sum and row_max.
template <class Space, class Body>
struct RowOfWholeTeam {
  Body body;

  KOKKOS_FUNCTION void operator()(const RowTeam<Space>& team) const {
    body(WholeTeam<RowTeam<Space>>{team}, static_cast<std::int64_t>(team.league_rank()));
  }
};

template <class Space, class Body>
void for_each_long_row(const Space& space, const std::string& label, std::int64_t rows, const Body& body) {
  if (rows == 0) return;
  constexpr int kWarps = runs_on_host<Space> ? 1 : 8;
  constexpr int kVector = runs_on_host<Space> ? 1 : kLanes;
  Kokkos::parallel_for(label, Kokkos::TeamPolicy<Space>(space, static_cast<int>(rows), kWarps, kVector),
                       RowOfWholeTeam<Space, Body>{body});
}

/// sum of value(c) over the columns, by lanes on one host thread.
template <class Value>
KOKKOS_INLINE_FUNCTION float lane_sum(std::int64_t columns, const Value& value) {
  float lanes[kLanes] = {};
  std::int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += value(c + lane);
  }
  for (int lane = 0; c + lane < columns; ++lane) lanes[lane] += value(c + lane);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

/// The sum of f(x[c]...) over c in [0, columns), the same on all lanes of the worker.
template <class Team, class F, class... In>
KOKKOS_INLINE_FUNCTION float row_sum(const Team& team, std::int64_t columns, const F& f, const In*... x) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team); return lane_sum(
                         columns, [=](std::int64_t c) { return value_of(f, c, static_cast<float>(x[c])...); });))
  KOKKOS_IF_ON_DEVICE(
      (const std::int64_t lanes = lanes_of(team); float total = 0.0F; Kokkos::parallel_reduce(
           columns_of(team, lanes),
           [&](std::int64_t lane, float& sum) { sum += fold_share<Added>(columns, lane, lanes, f, x...); }, total);
       return total;))
}

/// out[c] = T(f(x[c]...)) for c in [0, columns), by store_run on a host. `out` may be one of x. A GPU's lane
/// reads kAtOnce packs before it stores the first, and computes f for all of them even if the row ends before.
template <int kAtOnce = kInFlight, class Team, class T, class F, class... In>
KOKKOS_INLINE_FUNCTION void assign_row(const Team& team, T* out, std::int64_t columns, const F& f, const In*... x) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team); store_run(
                         out, columns, [=](std::int64_t c) { return value_of(f, c, static_cast<float>(x[c])...); });))
  KOKKOS_IF_ON_DEVICE(
      (const std::int64_t lanes = lanes_of(team); Kokkos::parallel_for(columns_of(team, lanes), [&](std::int64_t lane) {
         assign_share<kAtOnce>(out, columns, lane, lanes, f, x...);
       });))
}

/// body(c) for c in [0, columns); the columns must not depend on each other.
template <class Team, class Body>
KOKKOS_INLINE_FUNCTION void for_each_column(const Team& team, std::int64_t columns, const Body& body) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team); simd_loop(columns, body);))
  KOKKOS_IF_ON_DEVICE((Kokkos::parallel_for(columns_of(team, columns), body);))
}

/// The number of columns of a call of for_each_pack's body.
template <int kCount>
using Columns = std::integral_constant<int, kCount>;

/// On a GPU, body(Columns<kCount>(), c) for each whole pack [c, c + kCount) if `packed`, and body(Columns<1>(), c) for
/// each other column; the columns must not depend on each other.
template <int kCount, class Team, class Body>
KOKKOS_INLINE_FUNCTION void for_each_pack(const Team& team, std::int64_t columns, bool packed, const Body& body) {
  const std::int64_t packs = packed ? columns / kCount : 0;
  Kokkos::parallel_for(columns_of(team, packs), [&](std::int64_t pack) { body(Columns<kCount>(), pack * kCount); });
  const std::int64_t rest = columns - packs * kCount;
  Kokkos::parallel_for(columns_of(team, rest), [&](std::int64_t c) { body(Columns<1>(), packs * kCount + c); });
}

/// to[c] = from[c] for c in [0, columns); the two do not overlap.
template <class Team, class T>
KOKKOS_INLINE_FUNCTION void copy_row(const Team& team, T* to, const T* from, std::int64_t columns) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team); std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(T));))
  KOKKOS_IF_ON_DEVICE((for_each_pack<kPackOf<T>>(team, columns, is_aligned(to, from), [=](auto count, std::int64_t c) {
                         copy_pack<decltype(count)::value>(to + c, from + c);
                       });))
}

/// a[c] = T(f(x[c]...).first), b[c] = T(f(x[c]...).second) for c in [0, columns), by store_runs on a host.
template <class Team, class T, class F, class... In>
KOKKOS_INLINE_FUNCTION void assign_rows(const Team& team, T* a, T* b, std::int64_t columns, const F& f,
                                        const In*... x) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team);
                     store_runs(a, b, columns, [=](std::int64_t c) { return f(static_cast<float>(x[c])...); });))
  KOKKOS_IF_ON_DEVICE(
      (for_each_pack<kPackOf<T, In...>>(team, columns, is_aligned(a, b, x...), [=](auto count, std::int64_t c) {
         assign_two(a + c, b + c, f, load_pack<decltype(count)::value>(x + c)...);
       });))
}

}  // namespace kozero::kernels
