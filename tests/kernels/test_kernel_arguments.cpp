// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_kernel_arguments.cpp: a kernel reads each captured value at the address where the host wrote it. On a GPU, two
// compilers lay out the closure; if their layouts differ, every kernel reads wrong bytes (cmake/KernelArguments.cmake;
// kokkos/mdspan #434).
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <vector>

#include <kozero/core/precision.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/packs.hpp"

namespace kozero::kernels {
namespace {

using Owner = Kokkos::View<double*, Device::memory_space>;
using Team = Kokkos::TeamPolicy<Device>;

/// Views between scalars of every alignment, and a pack, which is aligned to 16 bytes.
struct Mixed {
  bool flag;
  Vector<const float> vector;
  std::uint8_t byte;
  Matrix<const float> matrix;
  std::uint16_t half;
  StoredPack<float, 4> pack;
  Owner owner;
  float single;
  std::int64_t whole;
  Vector<Bfloat16> stored;
  int last;
};

constexpr int kValues = 17;

KOKKOS_INLINE_FUNCTION std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// The values read from `all`, as integers.
KOKKOS_INLINE_FUNCTION void read(const Mixed& all, std::uint64_t* values) {
  int next = 0;
  values[next++] = all.flag ? 1 : 0;
  values[next++] = address(all.vector.data());
  values[next++] = all.vector.extent(0);
  values[next++] = static_cast<std::uint64_t>(all.byte);
  values[next++] = address(all.matrix.data());
  values[next++] = all.matrix.extent(0);
  values[next++] = all.matrix.extent(1);
  values[next++] = static_cast<std::uint64_t>(all.half);
  values[next++] = static_cast<std::uint64_t>(all.pack.x[0]);
  values[next++] = static_cast<std::uint64_t>(all.pack.x[3]);
  values[next++] = address(all.owner.data());
  values[next++] = all.owner.extent(0);
  values[next++] = static_cast<std::uint64_t>(all.single);
  values[next++] = static_cast<std::uint64_t>(all.whole);
  values[next++] = address(all.stored.data());
  values[next++] = all.stored.extent(0);
  values[next++] = static_cast<std::uint64_t>(all.last);
}

Mixed mixed(const Owner& owner) {
  // These pointers are never dereferenced.
  const auto pointer = [](std::uintptr_t place) { return reinterpret_cast<void*>(place); };
  return {true,
          Vector<const float>(static_cast<const float*>(pointer(0x1000)), 11),
          3,
          Matrix<const float>(static_cast<const float*>(pointer(0x2000)), 5, 7),
          1234,
          {{21.0F, 22.0F, 23.0F, 24.0F}},
          owner,
          77.0F,
          std::int64_t{1} << 40,
          Vector<Bfloat16>(static_cast<Bfloat16*>(pointer(0x3000)), 13),
          99};
}

std::vector<std::uint64_t> on_host(const Kokkos::View<std::uint64_t*, Device::memory_space>& values) {
  const auto copy = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), values);
  return {copy.data(), copy.data() + copy.extent(0)};
}

/// The values that a kernel of each form reads: a range, a team, a reduction.
std::vector<std::vector<std::uint64_t>> found_by_kernels(const Mixed& all) {
  std::vector<std::vector<std::uint64_t>> found;
  const Kokkos::View<std::uint64_t*, Device::memory_space> out("out", kValues);
  Kokkos::parallel_for(
      "kozero::test::range", Kokkos::RangePolicy<Device>(0, 1), KOKKOS_LAMBDA(int) { read(all, out.data()); });
  found.push_back(on_host(out));
  Kokkos::deep_copy(out, std::uint64_t{0});
  Kokkos::parallel_for(
      "kozero::test::team", Team(1, 1), KOKKOS_LAMBDA(const Team::member_type& team) {
        Kokkos::single(Kokkos::PerTeam(team), [&] { read(all, out.data()); });
      });
  found.push_back(on_host(out));
  Kokkos::deep_copy(out, std::uint64_t{0});
  std::int64_t sum = 0;
  Kokkos::parallel_reduce(
      "kozero::test::reduction", Kokkos::RangePolicy<Device>(0, 3),
      KOKKOS_LAMBDA(int index, std::int64_t& partial) {
        if (index == 0) read(all, out.data());
        partial += all.last;
      },
      sum);
  found.push_back(on_host(out));
  found.back().push_back(static_cast<std::uint64_t>(sum));
  return found;
}

TEST_CASE("a kernel reads each captured value where the host put it") {
  const Owner owner("owner", 17);
  const Mixed all = mixed(owner);
  std::vector<std::uint64_t> expected(kValues);
  read(all, expected.data());
  REQUIRE(expected.front() == 1);
  REQUIRE(expected.back() == 99);
  const auto found = found_by_kernels(all);
  CHECK(found[0] == expected);
  CHECK(found[1] == expected);
  expected.push_back(3 * 99);
  CHECK(found[2] == expected);
}

}  // namespace
}  // namespace kozero::kernels
