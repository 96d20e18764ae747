// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_product_bits.cpp: the bits of a granule's products depend neither on the number of threads nor on what the other
// sequences of the batch hold. A granule has M = sequences x T rows, whatever the number of ranks, so that a library
// that chooses its algorithm by M chooses the same one; a short last granule has its own M on any number of ranks.
//   y = x w^T   dx = dy w   dw = dy^T x         x (M, C)   w (N, C)   y (M, N)
// A process keeps its number of threads: the program starts itself, and compares the hashes that each process prints.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/generators/catch_generators.hpp>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "kernels/matmul/product_tuning.hpp"

#include "product_case.hpp"

namespace kozero::kernels {
namespace {

std::uint64_t hash_of(const std::vector<float>& values) {
  std::uint64_t hash = 14695981039346656037U;
  for (const float value : values) hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211U;
  return hash;
}

struct Extents {
  std::int64_t rows, outputs, inputs;  ///< M, N, C
};

/// Sequences of odd length; a short granule of one sequence; many rows for few channels, whose sums over rows a library
/// may share among threads; the channels of a 124M model.
std::vector<Extents> granules() {
  std::vector<Extents> all;
  for (const std::int64_t rows : {4 * 33, 33, 7}) {
    for (const auto& [outputs, inputs] :
         {std::pair<std::int64_t, std::int64_t>{288, 96}, {96, 384}, {257, 96}, {26, 26}}) {
      all.push_back({rows, outputs, inputs});
    }
  }
  all.insert(all.end(), {{4096, 64, 48}, {2048, 96, 13}, {8192, 16, 16}, {1024, 768, 768}, {256, 3072, 96}});
  return all;
}

template <class T>
void print_hashes(const char* products, const char* type, const Extents& of) {
  const auto say = [&](const char* what, const std::vector<float>& values) {
    const bool is_wide = std::min(of.outputs, of.inputs) >= 24;
    std::cout << "hash of " << products << (is_wide ? " wide " : " narrow ") << type << " " << what << " " << of.rows
              << " x " << of.outputs << " x " << of.inputs << ": " << hash_of(values) << "\n";
  };
  using Stored = Types<T, T>;
  using Summed = Types<float, T>;
  say("y", product_of(Case<Stored>{of.rows, of.outputs, of.inputs, Op::none, Op::transpose}, false));
  say("y + b", biased_product_of(Case<Stored>{of.rows, of.outputs, of.inputs, Op::none, Op::transpose}));
  say("dx", product_of(Case<Stored>{of.rows, of.inputs, of.outputs, Op::none, Op::none}, false));
  say("dw", product_of(Case<Summed>{of.outputs, of.inputs, of.rows, Op::transpose, Op::none}, false));
  say("dw +=", product_of(Case<Summed>{of.outputs, of.inputs, of.rows, Op::transpose, Op::none}, true));
}

/// What this program prints with other threads and instructions.
std::vector<std::string> hashes_with(const std::string& environment) {
  std::string path(4096, '\0');
  path.resize(static_cast<std::size_t>(std::max<ssize_t>(0, readlink("/proc/self/exe", path.data(), path.size()))));
  const std::string command = "env " + environment + " OMP_PROC_BIND=false '" + path + "' '[hashes]'";
  std::FILE* const output = popen(command.c_str(), "r");
  REQUIRE(output != nullptr);
  std::vector<std::string> lines;
  std::string line(512, '\0');
  while (std::fgets(line.data(), static_cast<int>(line.size()), output) != nullptr) {
    if (line.starts_with("hash of ")) lines.emplace_back(line.c_str());
  }
  const int status = pclose(output);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 126) SKIP("an emulated program cannot start itself here");
  REQUIRE(status == 0);
  return lines;
}

/// How many lines of another process differ in their numbers, after products that may: the library's own, and with the
/// rule those that fill no tiles.
int differing(const std::vector<std::string>& first, const std::vector<std::string>& other, const char* which) {
  REQUIRE(first.size() == other.size());
  int count = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].find(which) == std::string::npos) continue;
    count += first[i] == other[i] ? 0 : 1;
    if (first[i] != other[i]) UNSCOPED_INFO(first[i] << other[i]);
  }
  return count;
}

}  // namespace

TEST_CASE("prints the hashes of products", "[.][hashes]") {
  for (const auto& [products, name] :
       {std::pair{Products::fastest, "the rule's"}, std::pair{Products::library, "the library's"}}) {
    choose_products(products);
    for (const Extents& of : granules()) {
      print_hashes<float>(name, "f32", of);
      print_hashes<Bfloat16>(name, "bf16", of);
      print_hashes<Float16>(name, "fp16", of);
    }
  }
  choose_products(Products::fastest);
}

// oneDNN shares the terms of a sum among threads, which is said where it multiplies (products_depend_on_threads).
TEST_CASE("products by a tile unit, or by loops, have the same bits on any number of threads", "[product_bits]") {
  const auto one = hashes_with("OMP_NUM_THREADS=1");
  REQUIRE(one.size() > 100);
  const bool depends = products_depend_on_threads(Precision::f32);
  const bool is_loops = product_library() == "loops";
  CHECK(!(depends && is_loops));
  for (const std::string threads : {"2", "3"}) {
    const auto more = hashes_with("OMP_NUM_THREADS=" + threads);
    INFO(threads << " threads");
    if (!depends) CHECK(differing(one, more, "the rule's wide") == 0);
    if (is_loops) CHECK(differing(one, more, "hash of") == 0);
    const int of_library = differing(one, more, "the library's");
    if (of_library > 0) {
      WARN(product_library() << ", " << product_instructions() << ": " << of_library
                             << " products have other bits with " << threads << " threads");
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a sequence's rows of a product do not depend on the others of the batch", "[product_bits]",
                        reference::StoredTypes) {
  choose_products(GENERATE(Products::fastest, Products::library));
  for (const Extents& of : granules()) {
    const std::int64_t seq = of.rows / 4 + 1;  // rows of the sequence that both batches have
    std::vector<float> values = reference::numbers<TestType>(of.rows * of.inputs, 1);
    const Filled<TestType> x(values), w(reference::numbers<TestType>(of.outputs * of.inputs, 2));
    for (auto i = static_cast<std::size_t>(seq * of.inputs); i < values.size(); ++i) values[i] = -values[i] + 0.5F;
    const Filled<TestType> others(values), y(of.rows * of.outputs), again(of.rows * of.outputs);
    const auto multiply = [&](const Filled<TestType>& out, const Filled<TestType>& in) {
      matmul(Device(), out.matrix(of.rows, of.outputs), Op::none, in.input(of.rows, of.inputs), Op::transpose,
             w.input(of.outputs, of.inputs), false);
      Device().fence();
      std::vector<float> all = out.values();
      all.resize(static_cast<std::size_t>(seq * of.outputs));
      return all;
    };
    CAPTURE(of.rows, of.outputs, of.inputs);
    CHECK(reference::same_bits(multiply(y, x), multiply(again, others)));
  }
  choose_products(Products::fastest);
}

}  // namespace kozero::kernels
