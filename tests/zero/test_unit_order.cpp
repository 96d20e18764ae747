// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_unit_order.cpp: what follows which unit in a pass, and whose buffer is whose.
#include <catch2/catch_test_macros.hpp>

#include <kozero/zero/gathered_units.hpp>

#include "vector_row.hpp"

using namespace kozero;
using zero::SlotBuffers;
using zero::UnitOrder;

TEST_CASE("a pass goes forward to the last unit and back to the first block") {
  UnitOrder order(4);
  std::vector<int> next;
  for (const int unit : {0, 1, 2, 3, 2, 1, 0}) {
    order.reach(unit);
    next.push_back(order.ahead(1));
  }
  CHECK(next == std::vector<int>{1, 2, 3, 2, 1, -1, 1});
  CHECK(order.ahead(2) == 2);
}

TEST_CASE("forward alone, again and again, begins anew with unit 0") {
  UnitOrder order(3);
  for (int pass = 0; pass < 2; ++pass) {
    for (int unit = 0; unit < 3; ++unit) {
      order.reach(unit);
      CHECK(order.ahead(1) == (unit == 2 ? 1 : unit + 1));
    }
  }
}

TEST_CASE("one unit has nothing ahead of it") {
  UnitOrder order(1);
  order.reach(0);
  CHECK(order.ahead(1) == -1);
}

TEST_CASE("units that follow one another in a slot take turns in its buffers; others share one") {
  ParameterTable table;
  for (const int slot : {0, 1, 1, 1, 0}) {
    table.add_unit("unit", slot);
    table.add(tests::vector_row("weight", 64 * (table.num_units())));
  }
  const auto places = [&](int ahead) {
    const SlotBuffers buffers(table, ahead);
    std::vector<std::size_t> of;
    for (int unit = 0; unit < 5; ++unit) of.push_back(buffers.of(unit));
    return of;
  };
  CHECK(places(0) == std::vector<std::size_t>{0, 1, 1, 1, 0});
  CHECK(places(1) == std::vector<std::size_t>{0, 1, 2, 1, 0});
  CHECK(places(9) == std::vector<std::size_t>{0, 1, 2, 3, 0});
  const SlotBuffers buffers(table, 1);
  CHECK(buffers.buffers().size() == 3);
  CHECK(buffers.buffers()[0].extent == 64 * 5);
  CHECK(buffers.buffers()[2].extent == 64 * 4);
  CHECK(buffers.buffers()[2].name == "slot 1, buffer 2");
}
