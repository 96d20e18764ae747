// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// product_scratch.hpp: what the host's products have in common: memory that all of a kind share, since they run one
// after another, and tasks that idle threads take.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <Kokkos_Core.hpp>
#include <memory>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>

namespace kozero::kernels {

/// task(i) for i in [0, tasks); an idle thread takes the next.
template <class Task>
void for_each_task(const Device& space, const char* label, std::int64_t tasks, const Task& task) {
  using Policy = Kokkos::RangePolicy<Device, Kokkos::Schedule<Kokkos::Dynamic>, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for(label, Policy(space, 0, tasks, Kokkos::ChunkSize(1)), task);
}

class ProductScratch {
 public:
  /// At least `wanted` bytes, from the border of a page on. It only ever grows; what it held is lost when it does.
  std::byte* at_least(std::int64_t wanted) {
    if (wanted > extent_) {
      const std::int64_t pages = (wanted + kPage - 1) / kPage * kPage;
      extent_ = 0;
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, static_cast<std::size_t>(pages))));
      if (memory_ == nullptr) throw Error(Failure::internal, "matmul: no memory for packed operands");
      extent_ = pages;
    }
    return memory_.get();
  }

 private:
  static constexpr std::int64_t kPage = 4096;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::int64_t extent_ = 0;
};

}  // namespace kozero::kernels
