// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unit_order.hpp: in which order a pass reads the weights of its units, so that the next ones can be gathered ahead.
//   forward 0, 1, ..., U - 1      backward U - 2, ..., 1      unit 0, the embedding, needs no weights in backward
// The order is a guess that costs nothing where it is wrong:
// a unit that was not gathered ahead is gathered when it is used.
#pragma once
#include <vector>

namespace kozero::zero {

class UnitOrder {
 public:
  explicit UnitOrder(int num_units);

  /// The pass has come to `unit`: forward again where it is 0, else to its next place in the order.
  void reach(int unit);
  /// The unit that is used `steps` >= 1 later, -1 past the end of the pass.
  [[nodiscard]] int ahead(int steps) const;

 private:
  std::vector<int> order_;
  std::size_t place_ = 0;
};

}  // namespace kozero::zero
