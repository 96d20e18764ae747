// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// operand_rings.hpp: operands for kernels that are to be timed as a step meets them: not in any cache.
// Two large arrays, one of inputs (noise in [0, 1)) and one of outputs, are handed out in turn from front to end and
// then from the front again, so that a call finds its operands where many others have passed since.
#pragma once
#include <cstdint>
#include <string>

#include <kozero/core/ledger.hpp>

namespace kozero::commands {

class OperandRing {
 public:
  OperandRing(MemoryLedger& ledger, const std::string& label, std::int64_t bytes);

  /// The next `extent` elements. Throws Error(internal) where a call's operands would overlap.
  template <class T>
  Vector<T> take(std::int64_t extent) {
    return Vector<T>(reinterpret_cast<T*>(next(extent * static_cast<std::int64_t>(sizeof(T)))),
                     static_cast<std::size_t>(extent));
  }
  template <class T>
  Matrix<T> take(std::int64_t rows, std::int64_t columns) {
    return as_matrix(take<T>(rows * columns), rows, columns);
  }
  /// What was handed out before may be handed out again.
  void begin_call() { in_call_ = 0; }

 private:
  std::byte* next(std::int64_t bytes);

  Vector<std::byte> memory_;
  std::int64_t at_ = 0;
  std::int64_t in_call_ = 0;  ///< bytes handed out or passed over since begin_call()
};

struct OperandRings {
  /// `call_bytes`: the most that one call takes of either.
  OperandRings(MemoryLedger& ledger, std::int64_t call_bytes);

  OperandRing inputs;
  OperandRing outputs;
};

}  // namespace kozero::commands
