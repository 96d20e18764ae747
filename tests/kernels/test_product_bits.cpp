// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_product_bits.cpp: the bits of a granule's products and attention depend neither on the number of threads nor on
// the other sequences of the batch, with each of the processor's tile units (KOZERO_TILE_UNITS).
//   y = x w^T   dx = dy w   dw = dy^T x         x (M, C)   w (N, C)   y (M, N)
// The number of threads of a process is fixed, so the program starts itself and compares the hashes that each process
// prints.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/generators/catch_generators_range.hpp>

#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "kernels/attention/attention.hpp"
#include "kernels/matmul/host/tile_units.hpp"
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
/// may share among threads; sums in several spans of the loops; the channels of a 124M model.
std::vector<Extents> granules() {
  std::vector<Extents> all;
  for (const std::int64_t rows : {4 * 33, 33, 7}) {
    for (const auto& [outputs, inputs] :
         {std::pair<std::int64_t, std::int64_t>{288, 96}, {96, 384}, {257, 96}, {26, 26}}) {
      all.push_back({rows, outputs, inputs});
    }
  }
  all.insert(all.end(),
             {{4096, 64, 48}, {2048, 96, 13}, {8192, 16, 16}, {9001, 40, 17}, {1024, 768, 768}, {256, 3072, 96}});
  return all;
}

template <class T>
void print_hashes(const char* products, const char* type, const Extents& of) {
  const auto say = [&](const char* what, const std::vector<float>& values) {
    std::cout << "hash of " << products << " " << type << " " << what << " " << of.rows << " x " << of.outputs << " x "
              << of.inputs << ": " << hash_of(values) << "\n";
  };
  using Stored = Types<T, T>;
  using Summed = Types<float, T>;
  say("y", product_of(Case<Stored>{of.rows, of.outputs, of.inputs, Op::none, Op::transpose}, false));
  say("y + b", biased_product_of(Case<Stored>{of.rows, of.outputs, of.inputs, Op::none, Op::transpose}));
  say("dx", product_of(Case<Stored>{of.rows, of.inputs, of.outputs, Op::none, Op::none}, false));
  say("dw", product_of(Case<Summed>{of.outputs, of.inputs, of.rows, Op::transpose, Op::none}, false));
  say("dw +=", product_of(Case<Summed>{of.outputs, of.inputs, of.rows, Op::transpose, Op::none}, true));
}

template <class T>
void print_attention_hashes(const char* products, const char* type) {
  constexpr std::uint64_t kSamples[] = {5, 9};
  for (const float dropout : {0.0F, 0.25F}) {
    for (const std::int64_t positions : {7, 65, 200}) {
      const AttentionShape shape{.batch = 2,
                                 .positions = positions,
                                 .heads = 6,
                                 .kv_heads = 3,
                                 .head_dim = 20,
                                 .dropout = dropout,
                                 .sample_ids = kSamples};
      const Filled<T> qkv(reference::numbers<T>(shape.rows() * shape.qkv_columns(), 1));
      const Filled<T> dy(reference::numbers<T>(shape.rows() * shape.y_columns(), 2));
      const Filled<T> y(shape.rows() * shape.y_columns()), dqkv(shape.rows() * shape.qkv_columns());
      const Filled<float> logsumexp(shape.batch * shape.heads * shape.positions);
      const Filled<float> workspace(attention_workspace<T>(shape));
      const auto rows_of = [&](const Filled<T>& x, std::int64_t columns) { return x.input(shape.rows(), columns); };
      const auto sums = logsumexp.matrix(shape.batch * shape.heads, shape.positions);
      attention_forward(Device(), y.matrix(shape.rows(), shape.y_columns()), sums, rows_of(qkv, shape.qkv_columns()),
                        shape, workspace.vector());
      attention_backward(Device(), dqkv.matrix(shape.rows(), shape.qkv_columns()), rows_of(dy, shape.y_columns()),
                         rows_of(y, shape.y_columns()), Matrix<const float>(sums), rows_of(qkv, shape.qkv_columns()),
                         shape, workspace.vector());
      Device().fence();
      std::cout << "hash of " << products << " " << type << " attention of " << positions << " positions, dropout "
                << dropout << ": " << hash_of(y.values()) << " " << hash_of(dqkv.values()) << "\n";
    }
  }
}

/// The output of this program with other threads and instructions; it runs once for each.
const std::vector<std::string>& hashes_with(const std::string& environment) {
  static std::map<std::string, std::vector<std::string>> known;
  if (const auto found = known.find(environment); found != known.end()) return found->second;
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
  return known[environment] = lines;
}

/// The processor's fastest units (""), and each kind below them, the fastest last.
std::vector<std::string> choices_of_units() {
  std::vector<std::string> choices = {""};
  for (const std::string_view name : kUnitNames) {
    if (name == tile_units<Bfloat16>().front().name) break;
    choices.push_back("KOZERO_TILE_UNITS='" + std::string(name) + "'");
  }
  return choices;
}

/// The number of lines with `which` that differ between two processes.
int differing(const std::vector<std::string>& first, const std::vector<std::string>& other, const char* which) {
  REQUIRE(first.size() == other.size());
  int count = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].find(which) == std::string::npos || first[i] == other[i]) continue;
    ++count;
    UNSCOPED_INFO(first[i] << other[i]);
  }
  return count;
}

}  // namespace

TEST_CASE("prints the hashes of products", "[.][hashes]") {
  for (const auto& [products, name] :
       {std::pair{Products::fastest, "the fastest"}, std::pair{Products::portable, "portable"}}) {
    choose_products(products);
    for (const Extents& of : granules()) {
      print_hashes<float>(name, "f32", of);
      print_hashes<Bfloat16>(name, "bf16", of);
      print_hashes<Float16>(name, "fp16", of);
    }
    print_attention_hashes<float>(name, "f32");
    print_attention_hashes<Bfloat16>(name, "bf16");
    print_attention_hashes<Float16>(name, "fp16");
  }
}

TEST_CASE("products and attention have the same bits on any number of threads", "[product_bits]") {
  const std::string units = GENERATE(from_range(choices_of_units()));
  const auto one = hashes_with(units + " OMP_NUM_THREADS=1");
  REQUIRE(one.size() > 100);
  for (const std::string threads : {"2", "3"}) {
    INFO(units << ", " << threads << " threads");
    CHECK(differing(one, hashes_with(units + " OMP_NUM_THREADS=" + threads), "") == 0);
  }
}

#if defined(__FMA__)
TEST_CASE("f32 and portable products have the same bits with narrower units", "[product_bits]") {
  const auto widest = hashes_with(" OMP_NUM_THREADS=1");
  const auto narrow = hashes_with("KOZERO_TILE_UNITS='AVX2' OMP_NUM_THREADS=1");
  CHECK(differing(widest, narrow, " f32 ") == 0);
  CHECK(differing(widest, narrow, " portable ") == 0);
}
#endif

TEMPLATE_LIST_TEST_CASE("a sequence's rows of a product do not depend on the others of the batch", "[product_bits]",
                        reference::StoredTypes) {
  choose_products(GENERATE(Products::fastest, Products::portable));
  for (const Extents& of : granules()) {
    const std::int64_t seq = of.rows / 4 + 1;  // rows of the sequence that is in both batches
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
