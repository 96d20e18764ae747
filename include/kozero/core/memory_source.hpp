// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory_source.hpp: memory of a special kind that someone else owns: pages that other ranks read too, memory
// registered with a network, a mapped file. A MemoryLedger books it like any other. Apart from the ledger, for sources
// that must not see Kokkos.
#pragma once
#include <cstdint>
#include <string>

namespace kozero {

class MemorySource {
 public:
  enum class Kind {
    device,  ///< as the ledger's own
    host,    ///< the host's, which the device reaches too
    disk     ///< pages of a file: no memory of their own
  };

  virtual ~MemorySource() = default;
  /// `bytes` (>= 0) of memory aligned to 64 bytes, untouched, which live as long as the source; of a disk they are
  /// zero. nullptr where there is none to give: the caller takes memory of its own.
  virtual void* share(const std::string& label, std::int64_t bytes) = 0;
  [[nodiscard]] virtual Kind kind() const { return Kind::device; }
};

}  // namespace kozero
