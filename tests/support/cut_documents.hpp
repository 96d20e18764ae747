// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cut_documents.hpp: the Documents of sequences that a test cuts into documents of given lengths.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include <kozero/core/batch.hpp>

namespace kozero::tests {

/// The lengths of each sequence's documents, in order.
using DocumentLengths = std::vector<std::vector<std::int32_t>>;

/// Owns the device memory of its Documents.
class CutDocuments {
 public:
  explicit CutDocuments(const DocumentLengths& lengths) {
    for (std::size_t sequence = 0; sequence < lengths.size(); ++sequence) {
      std::int32_t first = 0;
      for (const std::int32_t count : lengths[sequence]) {
        in_order_.push_back({static_cast<std::int32_t>(sequence), first, count, 0});
        for (std::int32_t t = 0; t < count; ++t) starts_.push_back(first);
        first += count;
      }
    }
    std::vector<DocumentSpan> spans = in_order_;
    std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
    for (std::size_t i = 1; i < spans.size(); ++i) spans[i].before = spans[i - 1].before + spans[i - 1].count;
    std::vector<std::int32_t> positions;
    for (const auto& span : in_order_) {
      for (std::int32_t t = 0; t < span.count; ++t) positions.push_back(t);
    }
    spans_ = on_device(spans);
    positions_ = on_device(positions);
    longest_ = spans.empty() ? 0 : spans.front().count;
  }

  [[nodiscard]] Documents view() const {
    return {Vector<const DocumentSpan>(spans_.data(), spans_.extent(0)),
            Vector<const std::int32_t>(positions_.data(), positions_.extent(0)), longest_};
  }
  [[nodiscard]] const std::vector<DocumentSpan>& in_order() const { return in_order_; }
  /// (B T), the position at which each token's document begins.
  [[nodiscard]] const std::vector<std::int64_t>& starts() const { return starts_; }

 private:
  template <class T>
  using Storage = Kokkos::View<T*, Kokkos::LayoutRight, DeviceMemory>;

  template <class T>
  static Storage<T> on_device(const std::vector<T>& values) {
    const Storage<T> storage("documents", values.size());
    Kokkos::deep_copy(storage, HostVector<const T>(values.data(), values.size()));
    return storage;
  }

  std::vector<DocumentSpan> in_order_;
  std::vector<std::int64_t> starts_;
  Storage<DocumentSpan> spans_;
  Storage<std::int32_t> positions_;
  std::int64_t longest_ = 0;
};

}  // namespace kozero::tests
