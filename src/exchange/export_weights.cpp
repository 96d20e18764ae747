// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/dist/self_communicator.hpp>
#include <kozero/exchange/chunks.hpp>
#include <kozero/exchange/export_weights.hpp>
#include <kozero/io/weights.hpp>
#include <kozero/io/weights_stream.hpp>

namespace kozero::exchange {

Exported export_weights(const std::string& weights, const std::string& out, const ParameterTable& table, bool tied) {
  if (std::filesystem::exists(out)) {
    throw Error(Failure::deck, out + ": there is something already; name a file that is not there");
  }
  // With no slices, this reads nothing but compares every name and shape.
  auto description = io::read_weights(*dist::make_self_communicator(), weights, table, {});
  const io::Hdf5File source(weights, io::Hdf5Access::read);
  if (tied) description.ties = io::tied_head(table);
  io::WeightsStream stream(out, table, description);
  std::vector<float> piece;
  Exported result;
  result.files = 1;
  for (std::size_t i = 0; i < table.rows().size(); ++i) {
    const auto& row = table.rows()[i];
    const auto from = source.open_dataset(io::weights_dataset(row.name));
    for_each_chunk(row.extent(), [&](std::int64_t first, std::int64_t count) {
      piece.resize(static_cast<std::size_t>(count));
      from.read(first, first + count, piece.data());
      stream.write(i, first, piece);
    });
    ++result.tensors;
    result.bytes += row.extent() * static_cast<std::int64_t>(sizeof(float));
  }
  stream.close();
  return result;
}

}  // namespace kozero::exchange
