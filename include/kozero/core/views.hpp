// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// views.hpp: the execution space, the array types and the host scalars of the whole program.
// Device is the execution space of this build (OpenMP threads, or one CUDA device). All arrays are row-major
// (LayoutRight) Kokkos Views without reference counting; a MemoryLedger owns their memory, planned at start.
// Legend of all comments: B batch, T positions, C channels, H heads, D head size, V vocabulary, L layers, N = B*T rows.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <type_traits>

namespace kozero {

using Device = Kokkos::DefaultExecutionSpace;
using DeviceMemory = Device::memory_space;
using Host = Kokkos::DefaultHostExecutionSpace;

using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;

template <class T, class Memory = DeviceMemory>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, Memory, Unmanaged>;
template <class T, class Memory = DeviceMemory>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Memory, Unmanaged>;

template <class T>
using HostVector = Vector<T, Kokkos::HostSpace>;
template <class T>
using HostMatrix = Matrix<T, Kokkos::HostSpace>;

/// Token ids on the device; every tokenizer's ids fit.
using Token = std::int32_t;

/// The contiguous elements [first, first + extent) of a vector. A slice of a planned vector (no memory) is planned.
template <class T, class Memory>
Vector<T, Memory> slice(const Vector<T, Memory>& all, std::int64_t first, std::int64_t extent) {
  T* begin = all.data() == nullptr ? nullptr : all.data() + first;
  return Vector<T, Memory>(begin, static_cast<std::size_t>(extent));
}

/// The bits of a vector in words of four bytes. The number of 16-bit values must be even, as it is in shards.
template <class T, class Memory>
Vector<std::uint32_t, Memory> words_of(const Vector<T, Memory>& values) {
  using Word = std::uint32_t;
  auto* const words = reinterpret_cast<Word*>(const_cast<std::remove_const_t<T>*>(values.data()));
  return Vector<Word, Memory>(words, values.extent(0) * sizeof(T) / sizeof(Word));
}

/// A vector's memory read as a (rows, columns) matrix.
template <class T, class Memory>
Matrix<T, Memory> as_matrix(const Vector<T, Memory>& flat, std::int64_t rows, std::int64_t columns) {
  return Matrix<T, Memory>(flat.data(), static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

/// Numbers that kernels write while the host continues, and that the host reads after a fence. On a GPU build they are
/// in pinned host memory, which kernels reach, so that a number needs no copy and no extra wait.
using HostScalars = Kokkos::View<double*, Kokkos::SharedHostPinnedSpace>;

}  // namespace kozero
