// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// segments.cpp: which elements of a rank's ranges have weight decay.
#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/optim/optimizer.hpp>

namespace kozero::optim {

namespace {

/// Appends `extent` elements; extends the last segment if its `decay` is equal.
void append(std::vector<Segment>& segments, std::int64_t extent, bool decay) {
  if (extent <= 0) return;
  if (!segments.empty() && segments.back().decay == decay) {
    segments.back().extent += extent;
    return;
  }
  const std::int64_t first = segments.empty() ? 0 : segments.back().first + segments.back().extent;
  segments.push_back(Segment{first, extent, decay});
}

/// Appends one range: its tensors by their offsets, and the pads between tensors.
void append_range(std::vector<Segment>& segments, const ParameterTable& table, const UnitRange& range) {
  std::int64_t done = range.begin;
  const std::int64_t end = range.begin + range.extent;
  for (const Parameter& row : table.rows_of(range.unit)) {
    const std::int64_t begin = std::clamp(row.offset, done, end);
    append(segments, begin - done, false);
    done = std::clamp(row.offset + row.extent(), begin, end);
    append(segments, done - begin, row.decay && row.trainable);
  }
  append(segments, end - done, false);
}

}  // namespace

std::vector<Segment> segments_of(const ParameterTable& table, const std::vector<UnitRange>& ranges) {
  std::vector<Segment> segments;
  std::int64_t extent = 0;
  for (const UnitRange& range : ranges) {
    require(range.first == extent, "optimizer: the ranges leave a gap in the rank's flat array");
    append_range(segments, table, range);
    extent += range.extent;
  }
  return segments;
}

}  // namespace kozero::optim
