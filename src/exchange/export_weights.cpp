// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/dist/self_communicator.hpp>
#include <kozero/exchange/chunks.hpp>
#include <kozero/exchange/export_weights.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/seal.hpp>
#include <kozero/io/weights.hpp>
#include <kozero/io/weights_stream.hpp>

namespace kozero::exchange {

namespace {

/// Throws Error(deck) where `out` is taken, or with `force` by something other than a weights file.
void require_free(const std::string& out, bool force) {
  const io::PathKind kind = io::path_kind(out);
  if (kind == io::PathKind::nothing) return;
  if (!force) {
    throw Error(Failure::deck, out + ": there is something already; name a file that is not there");
  }
  if (kind == io::PathKind::file) {
    static_cast<void>(io::read_seal(out));
    return;
  }
  throw Error(Failure::deck, out + ": --force replaces a weights file, and this is none; name another file");
}

}  // namespace

Exported export_weights(const ExportOrder& order, const ParameterTable& table) {
  require_free(order.out, order.force);
  // With no slices, this reads nothing but compares every name and shape.
  auto description = io::read_weights(*dist::make_self_communicator(), order.weights, table, {});
  const io::Hdf5File source(order.weights, io::Hdf5Access::read);
  if (order.config.tie_embeddings) description.ties = io::tied_head(table);
  io::WeightsStream stream(order.out, table, description);
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
