// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// scratch.hpp: one piece of memory that every layer uses in turn for what lives no longer than its own call.
//   planning:  Scratch plan;           carve from it      plan.bytes() is what the call needs; the Views are null
//   running:   Scratch scratch(memory); carve the same    pieces follow each other on 256-byte borders
// A layer carves in one function, called for the plan and for the run, so that the two cannot differ.
#pragma once
#include <cstddef>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>

namespace kozero::model {

class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(Vector<std::byte> memory) : memory_(memory), planning_(false) {}

  template <class T>
  Vector<T> vector(std::int64_t extent) {
    constexpr std::int64_t kBorder = 256;
    const std::int64_t first = bytes_;
    bytes_ += (extent * static_cast<std::int64_t>(sizeof(T)) + kBorder - 1) / kBorder * kBorder;
    if (planning_) return Vector<T>(nullptr, static_cast<std::size_t>(extent));
    require(bytes_ <= static_cast<std::int64_t>(memory_.extent(0)), "Scratch: more carved than planned");
    return Vector<T>(reinterpret_cast<T*>(memory_.data() + first), static_cast<std::size_t>(extent));
  }

  template <class T>
  Matrix<T> matrix(std::int64_t rows, std::int64_t columns) {
    return as_matrix(vector<T>(rows * columns), rows, columns);
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  Vector<std::byte> memory_;
  std::int64_t bytes_ = 0;
  bool planning_ = true;
};

}  // namespace kozero::model
