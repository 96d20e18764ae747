// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// parameter_views.cpp: rows of the parameter table for matrices and vectors, with their initial values and decay.
#include <algorithm>

#include <kozero/model/parameter_views.hpp>

namespace kozero::model {
namespace {

Parameter matrix_row(const std::string& name, std::int64_t rows, std::int64_t columns, float deviation) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = {rows, columns};
  parameter.deviation = deviation;
  parameter.overwritten = true;
  return parameter;
}

Parameter undecayed_vector(const std::string& name, std::int64_t extent, Initial initial) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = {extent};
  parameter.decay = false;
  parameter.initial = initial;
  return parameter;
}

}  // namespace

MatrixRef add_matrix(ParameterTable& table, const std::string& name, std::int64_t rows, std::int64_t columns,
                     float deviation) {
  const int row = table.add(matrix_row(name, rows, columns, deviation));
  return MatrixRef{table.row(row).offset, rows, columns};
}

MatrixRef add_zero_matrix(ParameterTable& table, const std::string& name, std::int64_t rows, std::int64_t columns) {
  Parameter parameter = matrix_row(name, rows, columns, 0.0F);
  parameter.initial = Initial::zeros;
  return MatrixRef{table.row(table.add(std::move(parameter))).offset, rows, columns};
}

std::vector<VocabularyBlock> add_vocabulary(ParameterTable& table, const std::string& name, VocabularyUse use,
                                            std::int64_t vocab, std::int64_t columns, std::int64_t block,
                                            const std::string& unit, float deviation) {
  const bool multiplies = use != VocabularyUse::lookup;
  std::vector<VocabularyBlock> blocks;
  const std::int64_t most = block > 0 ? block : vocab;
  for (std::int64_t first = 0; first < vocab; first += most) {
    const std::int64_t rows = std::min(most, vocab - first);
    const std::int64_t pad_rows = multiplies ? padded_vocabulary(rows) - rows : 0;
    Parameter parameter = matrix_row(name, rows, columns, deviation);
    parameter.pad = pad_rows * columns;
    parameter.overwritten = multiplies;
    if (block > 0) table.add_unit(unit + "." + std::to_string(blocks.size()), kEmbeddingSlot, use);
    const int row = first == 0 ? table.add(std::move(parameter)) : table.continue_tensor(std::move(parameter));
    blocks.push_back({table.row(row).unit, {table.row(row).offset, rows, columns, pad_rows}, first});
  }
  return blocks;
}

MatrixRef add_lookup_table(ParameterTable& table, const std::string& name, std::int64_t rows, std::int64_t columns,
                           float deviation) {
  Parameter parameter = matrix_row(name, rows, columns, deviation);
  parameter.overwritten = false;
  return MatrixRef{table.row(table.add(std::move(parameter))).offset, rows, columns};
}

MatrixRef add_matrix_below(ParameterTable& table, const MatrixRef& above, const std::string& name, std::int64_t rows,
                           float deviation) {
  table.add_joined(matrix_row(name, rows, above.columns, deviation));
  return MatrixRef{above.offset, above.rows + rows, above.columns};
}

VectorRef add_vector(ParameterTable& table, const std::string& name, std::int64_t extent, Initial initial) {
  return VectorRef{table.row(table.add(undecayed_vector(name, extent, initial))).offset, extent};
}

VectorRef add_vector_behind(ParameterTable& table, const VectorRef& before, const std::string& name,
                            std::int64_t extent, Initial initial) {
  table.add_joined(undecayed_vector(name, extent, initial));
  return VectorRef{before.offset, before.extent + extent};
}

}  // namespace kozero::model
