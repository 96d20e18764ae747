// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// vector_row.hpp: a one-dimensional tensor for tables that tests make.
#pragma once
#include <string>

#include <kozero/core/parameter_table.hpp>

namespace kozero::tests {

inline Parameter vector_row(const std::string& name, std::int64_t extent) {
  Parameter row;
  row.name = name;
  row.shape = {extent};
  return row;
}

}  // namespace kozero::tests
