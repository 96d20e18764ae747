// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// product_tuning.hpp: the table that assigns an algorithm to each kind of matrix product, and its measurement.
// The first part is for programs: set the table, tune, read the result. The second part is for back ends: name the
// algorithms of a kind, the default first, and get the index of the one to run. Call both from one host thread.
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

// The table by which matrix products are computed, and how one is measured.
//   kind        "bf16 = bf16 x bf16, 4096 x 2304 x 768, none none, bias": types, M x N x K, operations, what else goes in
//   algorithm   "oneDNN", "loops", "AVX-512 BF16", an algorithm of cuBLASLt: a name that means the same algorithm, and
//               gives the same bits, in every process with the same device and library
// A kind that is not in the table goes by the back end's rule. The table is the process's, since kernels know no run.
// No algorithm is timed but between begin_product_tuning() and end_product_tuning(). From one host thread.

using ProductAlgorithms = std::map<std::string, std::string>;  ///< kind -> algorithm

/// The table from now on; `source` is where it comes from, for messages. Throws Error(input) naming a kind whose
/// algorithm this back end does not have; what only a product can tell is refused at the first of its kind.
void use_product_algorithms(ProductAlgorithms algorithms, std::string source = "");
const ProductAlgorithms& product_algorithms();

/// A kind that was met while tuning.
struct TunedProduct {
  std::string kind;
  std::vector<std::string> algorithms;  ///< the rule's own first
  std::vector<double> seconds;    ///< of each, the median of the rounds; infinite where it was refused when it ran
  std::size_t kept = 0;           ///< the fastest; the rule's own where none is faster by more than noise
  std::int64_t calls = 1;
};

/// From now on the first product of each kind times all its algorithms, one after the other, in so many rounds, on its
/// own operands; the timed results go to memory that is taken for it, but a host's GELU writes where it is to. Then the
/// algorithm that is kept computes it.
void begin_product_tuning(int rounds);
/// The kinds, in the order in which they were met. The table is what it was.
std::vector<TunedProduct> end_product_tuning();

/// "oneDNN 2.6.0", "cuBLASLt 130200".
std::string product_library();

/// The instruction set that the library's kernels are chosen by: "AVX-512 BF16", "AVX2"; "" where there is no choice.
std::string product_instructions();

/// Whether the bits of a precision's products depend on the number of threads: oneDNN shares the terms of a sum among
/// threads. Where a tile unit multiplies, only results with few rows or columns, which go to the library, may.
bool products_depend_on_threads(Precision precision);

// What a back end asks before it multiplies: which of its algorithms to take (product_tuning.hpp).
// It names the algorithms that it has for a kind, the rule's own first, and gets an index among them.

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

/// Every algorithm that the back end may have for some kind; none where only a product can tell.
std::vector<std::string> known_product_algorithms();

bool tuning_products();

/// An answer of algorithm_of() that was given outside of tuning holds until this is another number.
std::int64_t product_table_version();

/// The table's algorithm, else the rule's. Throws Error(input) where the table's is not among `algorithms`.
std::size_t listed_algorithm(const std::string& kind, const std::vector<std::string>& algorithms);

/// The index of the least; 0 where that is not less than the first by more than noise, 3 %.
std::size_t kept_of(const std::vector<double>& seconds);

/// The fastest, measured by multiply(index) where the kind was not met before.
std::size_t fastest_algorithm(const std::string& kind, const std::vector<std::string>& algorithms,
                        const std::function<void(std::size_t)>& multiply);

/// The index of the algorithm to take. To measure, multiply(index, memory for `extent` results) is called.
template <class Out, class Multiply>
std::size_t algorithm_of(const std::string& kind, const std::vector<std::string>& algorithms, std::int64_t extent,
                   const Multiply& multiply) {
  if (!tuning_products()) return listed_algorithm(kind, algorithms);
  Kokkos::View<Out*, DeviceMemory> results;
  return fastest_algorithm(kind, algorithms, [&](std::size_t algorithm) {
    if (results.data() == nullptr) results = {"kozero::product_algorithms::results", static_cast<std::size_t>(extent)};
    multiply(algorithm, results.data());
  });
}

/// Answers kept by a back end's own kinds, so that a product builds no text and takes no memory.
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
