// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// parquet_without_arrow.cpp: the place of parquet.cpp in a program without Arrow: Parquet files are recognized and
// refused.
#include <kozero/core/error.hpp>
#include "src/data/records.hpp"

namespace kozero::data {

std::unique_ptr<RecordFile> open_parquet(const std::string& path, const DocumentRules& rules) {
  throw Error(Failure::input, path + ": " + objection_to_parquet(path, rules).refusal);
}

Objection objection_to_parquet(const std::string& /*path*/, const DocumentRules& /*rules*/) {
  const std::string reason = "Parquet, which this program cannot read: it was built without Arrow";
  return {reason, reason + "; ./kozero.sh build fetches Arrow; with Spack: arrow+parquet"};
}

}  // namespace kozero::data
