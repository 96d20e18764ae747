// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// records_files.hpp: compressed bytes and Parquet files for tests.
#pragma once
#include <string>
#include <vector>

namespace kozero::tests {

/// One gzip member.
std::string gzipped(const std::string& bytes);
/// One zstd frame.
std::string zstd_frame(const std::string& bytes);

/// Columns text, id (a string), score (row / 200), int_score (row % 6), tags (a list of strings), kind ("even" or
/// "odd", as pandas' categories are) and doc (a struct of body, which is the text), in row groups of `group` rows, each
/// compressed by zstd, with checksums of pages. Only where the program reads Parquet.
void write_parquet(const std::string& path, const std::vector<std::string>& texts, int group);

}  // namespace kozero::tests
