// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/core/initial.hpp>
#include <kozero/core/random.hpp>

namespace kozero {

void fill_initial(const Parameter& parameter, std::uint64_t seed, std::int64_t first, HostVector<float> out) {
  const auto key = stream_key(seed, parameter.name);
  const double deviation = parameter.deviation;
  const auto kind = parameter.initial;
  const Host space;
  Kokkos::parallel_for(
      "kozero::fill_initial", Kokkos::RangePolicy<Host>(space, 0, static_cast<std::int64_t>(out.extent(0))),
      [=](const std::int64_t i) {
        switch (kind) {
          case Initial::normal:
            out(i) = static_cast<float>(deviation * normal_at(key, static_cast<std::uint64_t>(first + i)));
            break;
          case Initial::zeros:
            out(i) = 0.0F;
            break;
          case Initial::ones:
            out(i) = 1.0F;
            break;
        }
      });
  space.fence("kozero::fill_initial");
}

void fill_initial_unit(const ParameterTable& table, int unit, std::uint64_t seed, std::int64_t first,
                       HostVector<float> out) {
  const std::int64_t last = first + static_cast<std::int64_t>(out.extent(0));
  std::fill(out.data(), out.data() + out.extent(0), 0.0F);
  for (const auto& row : table.rows_of(unit)) {
    const std::int64_t begin = std::max(first, row.offset);
    const std::int64_t end = std::min(last, row.offset + row.extent());
    if (begin < end) fill_initial(row, seed, begin - row.offset, slice(out, begin - first, end - begin));
  }
}

}  // namespace kozero
