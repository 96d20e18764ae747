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

TEST_CASE("groups that are computed again are used upwards, the last group is not one of them") {
  const auto order_of = [](int num_units, int held) {
    UnitOrder order(num_units, held);
    for (int unit = 0; unit < num_units; ++unit) order.reach(unit);
    std::vector<int> backward;
    for (int step = 1; order.ahead(step) >= 0; ++step) backward.push_back(order.ahead(step));
    return backward;
  };
  CHECK(order_of(7, 1) == std::vector<int>{5, 4, 3, 2, 1});
  CHECK(order_of(7, 2) == std::vector<int>{5, 3, 4, 1, 2});
  CHECK(order_of(8, 2) == std::vector<int>{6, 5, 3, 4, 1, 2});
  CHECK(order_of(7, 4) == std::vector<int>{5, 1, 2, 3, 4});
  CHECK(order_of(7, 5) == std::vector<int>{5, 4, 3, 2, 1});
}

TEST_CASE("what comes before a unit of the pass") {
  UnitOrder order(5);
  order.reach(1);
  CHECK(order.comes_before(2, 2));
  CHECK_FALSE(order.comes_before(3, 2));
  CHECK_FALSE(order.comes_before(-1, 3));
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
