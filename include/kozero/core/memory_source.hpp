// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory_source.hpp: memory of a special kind that someone else owns: pages that other ranks read too, memory registered
// with a network. A MemoryLedger books it like any other. Apart from the ledger, for sources that must not see Kokkos.
#pragma once
#include <cstdint>
#include <string>

namespace kozero {

class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// `bytes` (>= 0) of device memory aligned to 64 bytes, untouched, which live as long as the source. nullptr where
  /// there is none to give: the caller takes memory of its own.
  virtual void* share(const std::string& label, std::int64_t bytes) = 0;
};

}  // namespace kozero
