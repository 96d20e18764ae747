// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// metrics_row.hpp: a few numbers of one line of metrics.jsonl, found in one pass over its bytes.
//   {"step":7,"loss":2.5,"val_loss":null,...}  with the keys {"loss", "val_loss"}  ->  7, {2.5, NaN}
// Numbers have the bits that were written. A file of 300,000 lines has 200 MB, for which a JSON tree per line is slow.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace kozero::io {

/// Fills `values` with the line's top-level numbers under `keys`: NaN for null, for what is no number and for an absent
/// key. Returns the step; nothing if the line is not a whole object with a step, as the last line of a run at work may
/// be.
std::optional<std::int64_t> read_metrics_row(std::string_view line, std::span<const std::string_view> keys,
                                             std::span<double> values);

}  // namespace kozero::io
