// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rotary_tables.hpp: the cosines and sines of RoPE, made once and read by every layer.
//   angle(t, i) = t * frequency(i)          cosines, sines (T, D/2)          frequency: kernels/rope_frequencies.hpp
// Su et al. 2021, arXiv:2104.09864.
#pragma once
#include <kozero/core/ledger.hpp>
#include <kozero/model/config.hpp>

namespace kozero::model {

struct RotaryTables {
  float theta = 10000.0F;
  RopeScaling scaling;
  Matrix<float> cosines;
  Matrix<float> sines;

  /// Takes the tables and, unless the ledger only plans, fills them on `space`.
  void reserve(MemoryLedger& ledger, const Device& space, std::int64_t positions, std::int64_t head_dim);
};

}  // namespace kozero::model
