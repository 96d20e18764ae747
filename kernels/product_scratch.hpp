// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// product_scratch.hpp: host memory that all products of a kind share, since they run one after another.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include <kozero/core/error.hpp>

namespace kozero::kernels {

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
