// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trace.hpp: the bits of a few training steps, and the first difference between two such traces.
//   in a step's order:  its loss, its gradient norm, the weights after it
// Only rank 0 of the ranks that trained has the weights of a trace; hashes of them are on all ranks.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/distributed/distributed_array.hpp>

namespace kozero::run {

/// A NaN equals itself, and 0 is not -0.
bool same_bits(double a, double b);
bool same_bits(float a, float b);

struct Trace {
  std::vector<double> losses;                      ///< by step
  std::vector<double> norms;                       ///< by step
  std::vector<std::vector<std::uint64_t>> hashes;  ///< by step: of each tensor after the step
  std::vector<std::string> tensors;                ///< their names
  int threads = 1;                                 ///< per rank
  std::vector<std::vector<float>> weights;         ///< by tensor, after the last step; empty: not kept

  /// One number for all tensors after the last step.
  [[nodiscard]] std::uint64_t hash() const;
};

/// The first difference of two traces.
struct Difference {
  std::string text;           ///< "step 2: the loss is 1.5 and was 1.25"
  std::optional<int> tensor;  ///< the first tensor whose weights differ, at that step or after the last one
};

/// For traces of one model and equally many steps. nullopt if all bits are equal.
std::optional<Difference> difference(const Trace& first, const Trace& other);

/// "wte.weight[17] is 0.5 and was 0.25 after step 3": the first element that differs; "" if none does.
std::string element_difference(const std::string& tensor, const std::vector<float>& first,
                               const std::vector<float>& other, std::size_t step);

/// All elements of the table's tensor on rank 0; empty on other ranks. Collective.
std::vector<float> whole_tensor(const ParameterTable& table, int tensor,
                                const distributed::DistributedArray<float>& master);

/// Throws Error(write).
void write_trace(const std::string& path, const Trace& trace);
/// Throws Error(input) if the file cannot be read or is not a trace.
Trace read_trace(const std::string& path);

}  // namespace kozero::run
