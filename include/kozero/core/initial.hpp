// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// initial.hpp: a parameter's initial values, any range of them, on any rank.
//   normal: deviation * z_i,  z_i = normal_at(stream_key(seed, name), i);   zeros: 0;   ones: 1
// Element i depends on (seed, name, i) alone, so every owner of a slice fills it by itself, with the same bits.
#pragma once
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/views.hpp>

namespace kozero {

/// Writes elements [first, first + out.extent(0)) of the parameter, in its published order, on all host threads.
void fill_initial(const Parameter& parameter, std::uint64_t seed, std::int64_t first, HostVector<float> out);

/// Writes the elements [first, first + out.extent(0)) of a unit: its tensors' initial values, pads zero.
void fill_initial_unit(const ParameterTable& table, int unit, std::uint64_t seed, std::int64_t first,
                       HostVector<float> out);

}  // namespace kozero
