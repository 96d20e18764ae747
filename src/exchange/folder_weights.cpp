// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/exchange/config_json.hpp>
#include <kozero/exchange/folder_weights.hpp>

#include "tensor_names.hpp"

namespace kozero::exchange {

model::Config read_folder_config(const std::string& folder) {
  constexpr std::int64_t kLeastOfLayer = 9;  // tensors: Llama's
  const std::string path = folder + "/config.json";
  model::Config config = read_config(path);
  const auto tensors = static_cast<std::int64_t>(io::SafetensorsFolder(folder).tensors().size());
  if (config.layers * kLeastOfLayer <= tensors) return config;
  throw Error(Failure::input, path + ": " + std::to_string(config.layers) + " layers have " +
                                  std::to_string(config.layers * kLeastOfLayer) + " tensors and more, the folder has " +
                                  std::to_string(tensors));
}

FolderWeights::FolderWeights(const std::string& folder, const model::Config& config, const ParameterTable& table)
    : table_(table), folder_(folder), tensors_(tensors_of(config, table, folder_)) {}

void FolderWeights::read(const io::UnitSlice<float>& slice) const {
  const std::int64_t slice_end = slice.begin + static_cast<std::int64_t>(slice.values.extent(0));
  std::fill_n(slice.values.data(), slice.values.extent(0), 0.0F);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Parameter& row = table_.rows()[i];
    if (row.unit != slice.unit) continue;
    const std::int64_t begin = std::max(slice.begin, row.offset);
    const std::int64_t end = std::min(slice_end, row.offset + row.extent());
    if (begin >= end) continue;
    float* const to = slice.values.data() + (begin - slice.begin);
    tensors_[i].file->read(*tensors_[i].entry, begin - row.offset, end - begin, to);
  }
}

}  // namespace kozero::exchange
