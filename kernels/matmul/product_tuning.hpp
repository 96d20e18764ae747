// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// product_tuning.hpp: the table that assigns an algorithm to each kind of matrix product, and its measurement.
//   kind        "bf16 = bf16 x bf16, 4096 x 2304 x 768, none none, bias": types, M x N x K, operations, epilogue
//   algorithm   "AVX2", "AVX-512 BF16", an algorithm of cuBLASLt: a name denotes the same algorithm, with
//               the same bits, in every process with the same device and library
// A kind that is not in the table uses the back end's default. There is one table per process. Algorithms are timed
// only between begin_product_tuning() and end_product_tuning(). The first part is for programs: set the table, tune,
// read the result. The second part is for back ends: name the algorithms of a kind, the default first, and get the
// index of the one to run. Call both from one host thread.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <kozero/core/precision.hpp>
#include "kernels/matmul/matmul.hpp"

namespace kozero::kernels {

using ProductAlgorithms = std::map<std::string, std::string>;  ///< kind -> algorithm

/// Sets the table; `source` names its origin in messages. Throws Error(input) naming a kind whose algorithm this back
/// end does not have. Algorithms that fail at run time are rejected at the first product of the kind.
void use_product_algorithms(ProductAlgorithms algorithms, std::string source = "");
const ProductAlgorithms& product_algorithms();

/// A kind that was met while tuning.
struct TunedProduct {
  std::string kind;
  std::vector<std::string> algorithms;  ///< the default first
  std::vector<double> seconds;          ///< of each algorithm, median over the rounds; infinite if rejected at run time
  std::size_t kept = 0;  ///< index of the fastest; the default unless another is faster by more than noise
  std::int64_t calls = 1;
};

/// From now on, the first product of each kind times all its algorithms in turn, in `rounds` rounds, on its operands.
/// The timed results go to temporary memory, except that a GELU on the host writes to its own output. Then the kept
/// algorithm computes the product.
void begin_product_tuning(int rounds);
/// Ends tuning and returns the kinds in the order of their first product. The table is unchanged.
std::vector<TunedProduct> end_product_tuning();

/// "KoZeRO's units", "cuBLASLt 130200".
std::string product_library();

/// The library with which to compare times: "oneDNN 2.6.0"; "" without one. While `use` is set, the library computes
/// all products; its bits depend on the number of threads.
std::string compared_library();
void use_compared_library(bool use);

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

/// All algorithms that the back end may have for any kind; empty if they are known only at the first product of a kind.
std::vector<std::string> known_product_algorithms();

bool tuning_products();

/// A result of algorithm_of() outside of tuning is valid until this number changes.
std::int64_t product_table_version();

/// The table's algorithm, else the default. Throws Error(input) if the table's is not among `algorithms`.
std::size_t listed_algorithm(const std::string& kind, const std::vector<std::string>& algorithms);

/// The index of the least value; 0 unless it is less than the first by more than the noise of 3 %.
std::size_t kept_of(const std::vector<double>& seconds);

/// The fastest algorithm, measured by multiply(index) at the first product of the kind.
std::size_t fastest_algorithm(const std::string& kind, const std::vector<std::string>& algorithms,
                              const std::function<void(std::size_t)>& multiply);

/// The index of the algorithm to run. Measurements call multiply(index, memory for `extent` results).
template <class Out, class Multiply>
std::size_t algorithm_of(const std::string& kind, const std::vector<std::string>& algorithms, std::int64_t extent,
                         const Multiply& multiply) {
  if (!tuning_products()) return listed_algorithm(kind, algorithms);
  Kokkos::View<Out*, DeviceMemory> results;
  return fastest_algorithm(kind, algorithms, [&](std::size_t algorithm) {
    if (results.data() == nullptr)
      results = decltype(results)("kozero::product_algorithms::results", static_cast<std::size_t>(extent));
    multiply(algorithm, results.data());
  });
}

/// Results of algorithm_of() cached by a back end's own key, so that a product builds no text and allocates no memory.
template <class Kind, class Algorithm>
class KeptAlgorithms {
 public:
  template <class Ask>
  Algorithm of(const Kind& kind, const Ask& ask) {
    if (tuning_products()) return ask();
    if (version_ != product_table_version()) algorithms_.clear();
    version_ = product_table_version();
    const auto found = algorithms_.find(kind);
    return found != algorithms_.end() ? found->second : algorithms_.emplace(kind, ask()).first->second;
  }

 private:
  std::map<Kind, Algorithm> algorithms_;
  std::int64_t version_ = 0;
};

}  // namespace kozero::kernels
