// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// ledger.hpp: who owns how many bytes, planned and real, by one and the same code.
// Every large buffer is taken from a MemoryLedger under a category and a label. A ledger that only plans hands out
// Views with a null pointer and the right extent, so `kozero plan` runs the constructors that training runs.
// Memory is zeroed on the device's threads (first touch), 64-byte aligned, on large pages,
// and lives as long as the ledger.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <kozero/core/memory_source.hpp>
#include <kozero/core/views.hpp>

namespace kozero {

enum class Memory : int { parameters, gradients, optimizer, gathered, activations, communication, workspace, staging };
inline constexpr std::array<std::string_view, 8> kMemoryNames = {
    "parameters", "gradients", "optimizer", "gathered", "activations", "communication", "workspace", "staging"};

class MemoryLedger {
 public:
  enum class Mode { allocate, plan };
  struct Line {
    Memory category;
    std::string label;
    std::int64_t bytes;
  };

  explicit MemoryLedger(Mode mode = Mode::allocate) : mode_(mode) {}
  ~MemoryLedger();
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  /// Books extent * sizeof(T) bytes of device memory and returns them, zeroed. Throws Error(internal) with the
  /// category, the label and the bytes where the memory cannot be had.
  template <class T>
  Vector<T> take(Memory category, const std::string& label, std::int64_t extent) {
    void* memory = take_bytes(category, label, extent * static_cast<std::int64_t>(sizeof(T)));
    return Vector<T>(static_cast<T*>(memory), static_cast<std::size_t>(extent));
  }
  /// The same from `source`, which outlives its use; of the ledger's own memory where the source has none.
  template <class T>
  Vector<T> take(Memory category, const std::string& label, std::int64_t extent, MemorySource& source) {
    void* memory = take_bytes(category, label, extent * static_cast<std::int64_t>(sizeof(T)), &source);
    return Vector<T>(static_cast<T*>(memory), static_cast<std::size_t>(extent));
  }
  template <class T>
  Matrix<T> take(Memory category, const std::string& label, std::int64_t rows, std::int64_t columns) {
    return as_matrix(take<T>(category, label, rows * columns), rows, columns);
  }

  /// Books bytes that something else owns (an MPI window, a library's workspace).
  void book(Memory category, const std::string& label, std::int64_t bytes);

  [[nodiscard]] bool plans_only() const { return mode_ == Mode::plan; }
  [[nodiscard]] std::int64_t bytes(Memory category) const;
  [[nodiscard]] std::int64_t total() const;
  [[nodiscard]] const std::vector<Line>& lines() const { return lines_; }

 private:
  void* take_bytes(Memory category, const std::string& label, std::int64_t bytes, MemorySource* source = nullptr);
  /// Throws Error(internal) where there is none.
  void* allocate(Memory category, const std::string& label, std::int64_t words);

  Mode mode_;
  std::vector<Line> lines_;
  std::vector<void*> owned_;
};

}  // namespace kozero
