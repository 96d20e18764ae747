// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tuning_file.hpp: the file of `kozero bench tune`: which algorithm computes each kind of matrix product, in TOML.
//   device = "NVIDIA H200"           the device of the measurement
//   library = "cuBLASLt 130200"      the library of the algorithms
//   threads = 8                      of the rank that measured; only for hosts
//   [products]
//   "KIND" = "ALGORITHM"
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace kozero::io {

struct TuningFile {
  std::string device;
  std::string library;
  std::int64_t threads = 0;                     ///< 0: not in the file
  std::map<std::string, std::string> products;  ///< kind -> algorithm
  bool operator==(const TuningFile&) const = default;
};

/// The file's text.
std::string tuning_text(const TuningFile& tuning);

/// Throws Error(input) naming `path`, the line if known, and the first problem.
TuningFile parse_tuning(const std::string& text, const std::string& path);

}  // namespace kozero::io
