// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// segments.cpp: which elements of a rank's ranges have weight decay, and their layers' rates.
#include <algorithm>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/core/portable_math.hpp>
#include <kozero/optim/optimizer.hpp>

namespace kozero::optim {

namespace {

/// Appends `extent` elements; extends the last segment if its decay and its rate are equal.
void append(std::vector<Segment>& segments, std::int64_t extent, bool decay, double rate) {
  if (extent <= 0) return;
  if (!segments.empty() && segments.back().decay == decay && segments.back().rate == rate) {
    segments.back().extent += extent;
    return;
  }
  const std::int64_t first = segments.empty() ? 0 : segments.back().first + segments.back().extent;
  segments.push_back(Segment{first, extent, decay, rate});
}

/// Appends one range: its tensors by their offsets, and the pads between tensors.
void append_range(std::vector<Segment>& segments, const ParameterTable& table, const UnitRange& range,
                  const std::vector<double>& rates) {
  std::int64_t done = range.begin;
  const std::int64_t end = range.begin + range.extent;
  for (const Parameter& row : table.rows_of(range.unit)) {
    const double rate = rates[static_cast<std::size_t>(row.tensor)];
    const std::int64_t begin = std::clamp(row.offset, done, end);
    append(segments, begin - done, false, rate);
    done = std::clamp(row.offset + row.extent(), begin, end);
    append(segments, done - begin, row.decay && row.trainable, rate);
  }
  append(segments, end - done, false, segments.empty() ? 1.0 : segments.back().rate);
}

/// The number of a tensor's block, from 1, as its name says: 3 of "h.2.ln_1.weight"; 0 if it is of none.
int block_of(const std::string& name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) return std::stoi(part) + 1;
    begin = end + 1;
  }
  return 0;
}

}  // namespace

std::vector<double> layer_rates(const ParameterTable& table, double layer_decay) {
  std::vector<int> layers;
  for (const Tensor& tensor : table.tensors()) layers.push_back(block_of(tensor.name));
  const int last = layers.empty() ? 0 : *std::max_element(layers.begin(), layers.end());
  std::vector<double> rates;
  bool is_behind = false;  // a block; tensors are in the order of forward
  for (const int layer : layers) {
    is_behind = is_behind || layer > 0;
    rates.push_back(integer_power(layer_decay, last - (layer == 0 && is_behind ? last : layer)));
  }
  return rates;
}

std::vector<Segment> segments_of(const ParameterTable& table, const std::vector<UnitRange>& ranges,
                                 double layer_decay) {
  const std::vector<double> rates = layer_rates(table, layer_decay);
  std::vector<Segment> segments;
  std::int64_t extent = 0;
  for (const UnitRange& range : ranges) {
    require(range.first == extent, "optimizer: the ranges leave a gap in the rank's flat array");
    append_range(segments, table, range, rates);
    extent += range.extent;
  }
  return segments;
}

}  // namespace kozero::optim
