// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// product_tuning.hpp: the table by which matrix products are computed, and how one is measured.
//   kind   "bf16 = bf16 x bf16, 4096 x 2304 x 768, none none, bias": types, M x N x K, operations, what else goes in
//   way    "oneDNN", "loops", "AVX-512 BF16", an algorithm of cuBLASLt: a name that means the same in every process with the
//          same device and library, and gives the same bits
// A kind that is not in the table goes by the back end's rule. The table is the process's, since kernels know no run.
// No algorithm is timed but between begin_product_tuning() and end_product_tuning(). From one host thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kozero::kernels {

using ProductWays = std::map<std::string, std::string>;  ///< kind -> way

/// The table from now on; `source` is where it comes from, for messages. Throws Error(input) naming a kind whose way
/// this back end does not have; what only a product can tell is refused at the first of its kind.
void use_product_ways(ProductWays ways, std::string source = "");
const ProductWays& product_ways();

/// A kind that was met while tuning.
struct TunedProduct {
  std::string kind;
  std::vector<std::string> ways;  ///< the rule's own first
  std::vector<double> seconds;    ///< of each, the median of the rounds; infinite where it was refused when it ran
  std::size_t kept = 0;           ///< the fastest; the rule's own where none is faster by more than noise
  std::int64_t calls = 1;
};

/// From now on the first product of each kind times all its ways, one after the other, in so many rounds, on its own
/// operands; the timed results go to memory that is taken for it, but a host's GELU writes where it is to. Then the way
/// that is kept computes it.
void begin_product_tuning(int rounds);
/// The kinds, in the order in which they were met. The table is what it was.
std::vector<TunedProduct> end_product_tuning();

/// "oneDNN 2.6.0", "cuBLASLt 130200".
std::string product_library();

}  // namespace kozero::kernels
