// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// imported_model.hpp: a resident model with the weights of a file, for tests of its logits.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <kozero/distributed/communicator.hpp>
#include <kozero/model/model.hpp>
#include <support/resident_access.hpp>
#include "io/checkpoint/weights_file.hpp"
#include "src/huggingface/config_json.hpp"

namespace kozero::tests {

class ImportedModel {
 public:
  ImportedModel(const model::Config& config, const std::string& weights)
      : model_(model::make_model<float>(config)), access_(model_->parameters()) {
    model_->reserve(ledger_, 1);
    const ParameterTable& table = model_->parameters();
    std::vector<std::vector<float>> memory;
    std::vector<io::RangeValues<float>> shards;
    for (int unit = 0; unit < table.num_units(); ++unit) {
      memory.emplace_back(static_cast<std::size_t>(table.unit(unit).extent));
      shards.push_back({unit, 0, HostVector<float>(memory.back().data(), memory.back().size())});
    }
    io::read_weights(*distributed::make_self_communicator(), weights, table, shards);
    for (std::size_t row = 0; row < table.rows().size(); ++row) {
      const Parameter& parameter = table.rows()[row];
      const auto begin = memory[static_cast<std::size_t>(parameter.unit)].begin() + parameter.offset;
      access_.set_weight(static_cast<int>(row), {begin, begin + parameter.extent()});
    }
  }

  /// The logits (V) after the last token.
  std::vector<float> logits(std::vector<Token> tokens) {
    const auto seq = static_cast<std::size_t>(model_->config().seq);
    const std::size_t count = tokens.size();
    tokens.resize(seq);
    const Kokkos::View<Token**, Kokkos::LayoutRight, DeviceMemory> inputs("inputs", 1, seq);
    Kokkos::deep_copy(inputs, HostMatrix<const Token>(tokens.data(), 1, seq));
    const auto vocab = static_cast<std::size_t>(model_->config().vocab);
    const Kokkos::View<float*, Kokkos::LayoutRight, DeviceMemory> logits("logits", vocab);
    model_->next_token_logits(access_, Matrix<const Token>(inputs.data(), 1, seq), static_cast<std::int64_t>(count),
                              Vector<float>(logits.data(), logits.extent(0)));
    std::vector<float> values(logits.extent(0));
    Kokkos::deep_copy(HostVector<float>(values.data(), values.size()), logits);
    return values;
  }

 private:
  MemoryLedger ledger_;
  std::unique_ptr<model::Model<float>> model_;
  ResidentAccess access_;
};

}  // namespace kozero::tests
