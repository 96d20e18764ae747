// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/model/tensor_place.hpp>

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

MatrixPlace add_matrix(ParameterTable& table, const std::string& name, std::int64_t rows, std::int64_t columns,
                       float deviation) {
  const int row = table.add(matrix_row(name, rows, columns, deviation));
  return MatrixPlace{table.row(row).offset, rows, columns};
}

MatrixPlace add_vocabulary(ParameterTable& table, const std::string& name, std::int64_t rows, std::int64_t columns,
                           float deviation) {
  const std::int64_t pad_rows = padded_vocabulary(rows) - rows;
  Parameter parameter = matrix_row(name, rows, columns, deviation);
  parameter.pad = pad_rows * columns;
  return MatrixPlace{table.row(table.add(std::move(parameter))).offset, rows, columns, pad_rows};
}

MatrixPlace add_lookup_table(ParameterTable& table, const std::string& name, std::int64_t rows, std::int64_t columns,
                             float deviation) {
  Parameter parameter = matrix_row(name, rows, columns, deviation);
  parameter.overwritten = false;
  return MatrixPlace{table.row(table.add(std::move(parameter))).offset, rows, columns};
}

MatrixPlace add_matrix_below(ParameterTable& table, const MatrixPlace& above, const std::string& name,
                             std::int64_t rows, float deviation) {
  table.add_joined(matrix_row(name, rows, above.columns, deviation));
  return MatrixPlace{above.offset, above.rows + rows, above.columns};
}

VectorPlace add_vector(ParameterTable& table, const std::string& name, std::int64_t extent, Initial initial) {
  return VectorPlace{table.row(table.add(undecayed_vector(name, extent, initial))).offset, extent};
}

VectorPlace add_vector_behind(ParameterTable& table, const VectorPlace& before, const std::string& name,
                              std::int64_t extent, Initial initial) {
  table.add_joined(undecayed_vector(name, extent, initial));
  return VectorPlace{before.offset, before.extent + extent};
}

}  // namespace kozero::model
