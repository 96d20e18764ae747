// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_unit_order.cpp: what follows which unit in a pass.
#include <catch2/catch_test_macros.hpp>

#include <kozero/zero/gathered_units.hpp>

using namespace kozero;
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
