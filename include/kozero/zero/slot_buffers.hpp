// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// slot_buffers.hpp: how many buffers the units of a slot share, and which of them is whose.
//   a slot whose units are used one after another (the blocks) has 1 + ahead buffers, never more than it has units
//   any other slot has one      the i-th unit of a slot lies in its buffer i mod buffers
// So 1 + ahead units that follow one another have buffers of their own: one at work, the others under way.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>

namespace kozero::zero {

class SlotBuffers {
 public:
  struct Buffer {
    std::string name;         ///< "slot 1", or "slot 1, buffer 2"
    std::int64_t extent = 0;  ///< elements of the slot's largest unit
  };

  SlotBuffers(const ParameterTable& table, int ahead);

  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
  /// Index into buffers().
  [[nodiscard]] std::size_t of(int unit) const { return of_unit_[static_cast<std::size_t>(unit)]; }

 private:
  std::vector<Buffer> buffers_;
  std::vector<std::size_t> of_unit_;
};

}  // namespace kozero::zero
