// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// product_ways.hpp: what a back end asks before it multiplies: which of its ways to take (product_tuning.hpp).
// It names the ways that it has for a kind, the rule's own first, and gets a place among them.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <kozero/core/precision.hpp>
#include <kozero/kernels/matmul.hpp>
#include <kozero/kernels/product_tuning.hpp>

namespace kozero::kernels {

/// "bf16 = bf16 x bf16, 4096 x 2304 x 768, none none, bias".
std::string kind_name(const char* out, const char* in, const ProductShape& shape);

template <class Out, class In>
std::string kind_name(const ProductShape& shape) {
  constexpr auto name = [](auto type) {
    using T = decltype(type);
    return name_of(std::is_same_v<T, float>      ? Precision::f32
                   : std::is_same_v<T, Bfloat16> ? Precision::bf16
                                                 : Precision::fp16);
  };
  return kind_name(name(Out()), name(In()), shape);
}

/// Every way that the back end may have for some kind; none where only a product can tell.
std::vector<std::string> known_product_ways();

bool tuning_products();

/// An answer of way_of() that was given outside of tuning holds until this is another number.
std::int64_t product_table_version();

/// The table's way, else the rule's. Throws Error(input) where the table's is not among `ways`.
std::size_t listed_way(const std::string& kind, const std::vector<std::string>& ways);

/// The place of the least; 0 where that is not less than the first by more than noise, 3 %.
std::size_t kept_of(const std::vector<double>& seconds);

/// The fastest, measured by multiply(place) where the kind was not met before.
std::size_t fastest_way(const std::string& kind, const std::vector<std::string>& ways,
                        const std::function<void(std::size_t)>& multiply);

/// The place of the way to take. To measure, multiply(place, memory for `extent` results) is called.
template <class Out, class Multiply>
std::size_t way_of(const std::string& kind, const std::vector<std::string>& ways, std::int64_t extent,
                   const Multiply& multiply) {
  if (!tuning_products()) return listed_way(kind, ways);
  Kokkos::View<Out*, DeviceMemory> results;
  return fastest_way(kind, ways, [&](std::size_t way) {
    if (results.data() == nullptr) results = {"kozero::product_ways::results", static_cast<std::size_t>(extent)};
    multiply(way, results.data());
  });
}

/// Answers kept by a back end's own kinds, so that a product builds no text and takes no memory.
template <class Kind, class Way>
class KeptWays {
 public:
  template <class Ask>
  Way of(const Kind& kind, const Ask& ask) {
    if (tuning_products()) return ask();
    if (version_ != product_table_version()) ways_.clear();
    version_ = product_table_version();
    const auto found = ways_.find(kind);
    return found != ways_.end() ? found->second : ways_.emplace(kind, ask()).first->second;
  }

 private:
  std::map<Kind, Way> ways_;
  std::int64_t version_ = 0;
};

}  // namespace kozero::kernels
