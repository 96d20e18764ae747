// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// ledger.hpp: bytes by category and label, planned and allocated by the same code.
// Every large buffer is taken from a MemoryLedger under a category and a label. A ledger that only plans returns
// Views with a null pointer and the right extent, so `kozero plan` runs the constructors that training runs.
// Memory is zeroed on the device's threads (first touch), aligned to 64 bytes, on large pages where the system grants
// them, and lives as long as the ledger. Scratch divides one block of memory into the arrays of a call.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/core/memory_source.hpp>
#include <kozero/core/views.hpp>

namespace kozero {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;

enum class Memory : int {
  parameters,
  gradients,
  optimizer,
  gathered,
  activations,
  communication,
  workspace,
  staging,  ///< host memory beside arrays in device memory
  disk      ///< mapped files, which need no memory of their own
};
inline constexpr std::array<std::string_view, 9> kMemoryNames = {
    "parameters", "gradients", "optimizer", "gathered", "activations", "communication", "workspace", "staging", "disk"};

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

  /// Books extent * sizeof(T) bytes of device memory and returns them, zeroed. If the allocation fails, throws
  /// Error(internal) with the category, the label and the bytes.
  template <class T>
  Vector<T> take(Memory category, const std::string& label, std::int64_t extent) {
    void* memory = take_bytes(category, label, extent * static_cast<std::int64_t>(sizeof(T)));
    return Vector<T>(static_cast<T*>(memory), static_cast<std::size_t>(extent));
  }
  /// The same with memory from `source`, which must outlive the array; from the ledger if the source returns nullptr.
  /// Memory on the host is booked as staging, memory on a disk as disk, instead of under `category`.
  template <class T>
  Vector<T> take(Memory category, const std::string& label, std::int64_t extent, MemorySource& source) {
    void* memory = take_bytes(category, label, extent * static_cast<std::int64_t>(sizeof(T)), &source);
    return Vector<T>(static_cast<T*>(memory), static_cast<std::size_t>(extent));
  }
  template <class T>
  Matrix<T> take(Memory category, const std::string& label, std::int64_t rows, std::int64_t columns) {
    return as_matrix(take<T>(category, label, rows * columns), rows, columns);
  }

  /// Books bytes that are allocated outside the ledger (an MPI window, a library's workspace).
  void book(Memory category, const std::string& label, std::int64_t bytes);

  [[nodiscard]] bool plans_only() const { return mode_ == Mode::plan; }
  [[nodiscard]] std::int64_t bytes(Memory category) const;
  /// The sum over all categories but disk.
  [[nodiscard]] std::int64_t total() const;
  [[nodiscard]] const std::vector<Line>& lines() const { return lines_; }

 private:
  void* take_bytes(Memory category, const std::string& label, std::int64_t bytes, MemorySource* source = nullptr);
  /// Throws Error(internal) if the allocation fails.
  void* allocate(Memory category, const std::string& label, std::int64_t words);

  Mode mode_;
  std::vector<Line> lines_;
  std::vector<void*> owned_;
};

/// One block of memory divided into arrays that live no longer than a call.
///   planning:  Scratch plan;             take from it     plan.bytes() is what the call needs; the arrays are null
///   running:   Scratch scratch(memory);  take the same    arrays follow each other, aligned to 256 bytes
/// One function takes all arrays of a call. The plan and the run both call this function, so that they cannot differ.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(Vector<std::byte> memory)
      : Scratch(memory.data(), static_cast<std::int64_t>(memory.extent(0)), 256) {}
  /// For one host thread, with arrays on cache lines. nullptr: planning. The extent of `memory` is not checked.
  static Scratch of_thread(void* memory) {
    const std::int64_t extent = memory == nullptr ? kPlanning : std::numeric_limits<std::int64_t>::max();
    return Scratch(static_cast<std::byte*>(memory), extent, 64);
  }

  /// Throws Error(internal) if the block is too small.
  template <class T>
  T* take(std::int64_t extent) {
    const std::int64_t first = bytes_;
    bytes_ += (extent * static_cast<std::int64_t>(sizeof(T)) + alignment_ - 1) / alignment_ * alignment_;
    if (extent_ == kPlanning) return nullptr;
    require(bytes_ <= extent_, "Scratch: more taken than planned");
    return reinterpret_cast<T*>(memory_ + first);
  }
  template <class T>
  Vector<T> vector(std::int64_t extent) {
    return Vector<T>(take<T>(extent), static_cast<std::size_t>(extent));
  }
  template <class T>
  Matrix<T> matrix(std::int64_t rows, std::int64_t columns) {
    return as_matrix(vector<T>(rows * columns), rows, columns);
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  Scratch(std::byte* memory, std::int64_t extent, std::int64_t alignment)
      : memory_(memory), extent_(extent), alignment_(alignment) {}

  static constexpr std::int64_t kPlanning = -1;

  std::byte* memory_ = nullptr;
  std::int64_t extent_ = kPlanning;
  std::int64_t alignment_ = 256;
  std::int64_t bytes_ = 0;
};

}  // namespace kozero
