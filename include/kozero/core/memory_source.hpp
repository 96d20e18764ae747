// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory_source.hpp: a source of special memory: pages that other ranks read too, memory registered with a network, a
// mapped file. A MemoryLedger books this memory like its own. The interface has a header of its own, without Kokkos,
// for sources that must not include Kokkos.
#pragma once
#include <cstdint>
#include <string>

namespace kozero {

class MemorySource {
 public:
  enum class Kind {
    device,  ///< device memory, like the ledger's own
    host,    ///< host memory that the device reaches
    disk     ///< pages of a mapped file
  };

  virtual ~MemorySource() = default;
  /// `bytes` (>= 0) of memory, aligned to 64 bytes, which live as long as the source. The memory is untouched; on a
  /// disk it is zero. nullptr if the source has no memory to give: the caller then allocates.
  virtual void* share(const std::string& label, std::int64_t bytes) = 0;
  [[nodiscard]] virtual Kind kind() const { return Kind::device; }
};

}  // namespace kozero
