// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/zero/unit_order.hpp>

namespace kozero::zero {

UnitOrder::UnitOrder(int num_units) {
  for (int unit = 0; unit < num_units; ++unit) order_.push_back(unit);
  for (int unit = num_units - 2; unit > 0; --unit) order_.push_back(unit);
}

void UnitOrder::reach(int unit) {
  const auto begin = order_.begin();
  const auto next = begin + static_cast<std::ptrdiff_t>(place_);
  auto found = std::find(next, order_.end(), unit);
  if (found == order_.end() || unit == 0) found = std::find(begin, order_.end(), unit);
  place_ = static_cast<std::size_t>(found - begin);
}

int UnitOrder::ahead(int steps) const {
  const std::size_t place = place_ + static_cast<std::size_t>(steps);
  return place < order_.size() ? order_[place] : -1;
}

}  // namespace kozero::zero
