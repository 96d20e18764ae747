// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cublaslt_mock.hpp: controls and counters of the mock of cuBLASLt (cublaslt_mock.cpp).
#pragma once
#include <cublasLt.h>
#include <map>

namespace kozero::cublaslt_mock {

/// Products that were computed since start_counting(), by epilogue.
using Counts = std::map<cublasLtEpilogue_t, int>;
void start_counting();
const Counts& counts();

/// From now on the heuristic has no algorithm for the epilogues of GELU and of bias gradients.
void support_epilogues(bool supported);

}  // namespace kozero::cublaslt_mock
