// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_partition.cpp: the arithmetic of shards and of their chunks, without MPI.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/parameter_table.hpp>

#include <vector>

using kozero::kAlignment;
using kozero::Partition;

namespace {

const std::vector<std::int64_t> kExtents = {0, 1, 63, 64, 65, 127, 128, 129, 448, 575, 1000, 4096, 4097, 123457};

}  // namespace

TEST_CASE("every element has one owner", "[partition]") {
  for (const std::int64_t extent : kExtents) {
    for (int n = 1; n <= 9; ++n) {
      CAPTURE(extent, n);
      const Partition partition(extent, n);
      std::vector<int> owners(static_cast<std::size_t>(extent), 0);
      for (int r = 0; r < n; ++r) {
        for (std::int64_t i = partition.begin(r); i < partition.end(r); ++i) ++owners[static_cast<std::size_t>(i)];
      }
      CHECK(owners == std::vector<int>(static_cast<std::size_t>(extent), 1));
    }
  }
}

TEST_CASE("shards follow each other, aligned, equal up to the last ones", "[partition]") {
  for (const std::int64_t extent : kExtents) {
    for (int n = 1; n <= 9; ++n) {
      CAPTURE(extent, n);
      const Partition partition(extent, n);
      CHECK(partition.begin(0) == 0);
      CHECK(partition.end(n - 1) == extent);
      for (int r = 0; r + 1 < n; ++r) {
        CHECK(partition.end(r) == partition.begin(r + 1));
        CHECK(partition.size(r) >= partition.size(r + 1));
        if (partition.size(r + 1) > 0) CHECK(partition.size(r) == partition.largest());
        if (partition.size(r + 1) > 0) CHECK(partition.begin(r + 1) % kAlignment == 0);
      }
      CHECK(partition.largest() < (extent + n - 1) / n + kAlignment);
    }
  }
}

TEST_CASE("few elements leave the last ranks empty", "[partition]") {
  const Partition partition(130, 7);  // ceil(130 / 7) = 19 -> shards of 64
  CHECK(partition.size(0) == 64);
  CHECK(partition.size(1) == 64);
  CHECK(partition.size(2) == 2);
  for (int r = 3; r < 7; ++r) CHECK(partition.size(r) == 0);
  CHECK(Partition(130, 1).size(0) == 130);
}

TEST_CASE("fewer owners are the last ranks, with the shards of as many ranks", "[partition]") {
  for (const std::int64_t extent : kExtents) {
    for (int n = 1; n <= 6; ++n) {
      for (int owners = 1; owners <= n; ++owners) {
        CAPTURE(extent, n, owners);
        const Partition partition(extent, n, owners);
        const Partition of_owners(extent, owners);
        for (int r = 0; r < n - owners; ++r) CHECK((partition.begin(r) == 0 && partition.end(r) == 0));
        for (int r = 0; r < owners; ++r) {
          CHECK(partition.begin(n - owners + r) == of_owners.begin(r));
          CHECK(partition.end(n - owners + r) == of_owners.end(r));
        }
        CHECK(partition.largest() == of_owners.largest());
        CHECK((!partition.is_even() || owners == n || extent == 0));
      }
    }
  }
  CHECK(Partition(128, 2).is_even());
  CHECK_FALSE(Partition(127, 2).is_even());
  CHECK_FALSE(Partition(128, 2, 1).is_even());
}

TEST_CASE("extents beyond 32 bits", "[partition]") {
  const std::int64_t extent = (std::int64_t{1} << 40) + 7;
  const Partition partition(extent, 3);
  CHECK(partition.size(0) + partition.size(1) + partition.size(2) == extent);
  CHECK(partition.begin(2) == 2 * partition.largest());
}

TEST_CASE("units are padded so that ranks of a power of two own equal shards, by less than 1/1024", "[partition]") {
  for (const std::int64_t parameters : {7087872, 39383808, 30740800, 12345, 130}) {
    kozero::ParameterTable table;
    table.add_unit("h.0", 0);
    table.add({.name = "weight", .shape = {parameters}});
    const std::int64_t extent = table.unit(0).extent;
    CHECK(extent >= parameters);
    CHECK(extent - parameters < std::max(parameters / 1024, kAlignment));
    for (int n = 1; n <= 512 && kAlignment * n <= parameters / 1024; n *= 2) {
      CAPTURE(parameters, n);
      const Partition partition(extent, n);
      CHECK(partition.size(n - 1) == partition.largest());
    }
  }
  CHECK(kozero::unit_multiple(7087872) == 64 * kAlignment);
  CHECK(kozero::unit_multiple(1000) == kAlignment);
  CHECK(kozero::unit_multiple(300000000) == 512 * kAlignment);
}
