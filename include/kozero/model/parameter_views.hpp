// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// parameter_views.hpp: a tensor's place in its unit, the views of a unit's tensors, and functions that add tensors to
// the table.
//   wte = add_matrix(table, "wte.weight", V, C);   WeightViews(access.acquire(unit))[wte]  is the (V, C) matrix
// Weights and gradients have the same layout, so one object gives both Views.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/parameter_access.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/views.hpp>

namespace kozero::model {

struct MatrixRef {
  std::int64_t offset = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t pad_rows = 0;
  bool in_adapters = false;  ///< in the unit of adapters beside the layer's unit

  template <class T, class Memory>
  [[nodiscard]] Matrix<T, Memory> in(const Vector<T, Memory>& unit) const {
    return as_matrix(slice(unit, offset, rows * columns), rows, columns);
  }
  /// The matrix with its rows of zeros.
  template <class T, class Memory>
  [[nodiscard]] Matrix<T, Memory> padded_in(const Vector<T, Memory>& unit) const {
    return as_matrix(slice(unit, offset, padded_rows() * columns), padded_rows(), columns);
  }
  [[nodiscard]] std::int64_t padded_rows() const { return rows + pad_rows; }
};

struct VectorRef {
  std::int64_t offset = 0;
  std::int64_t extent = 0;

  template <class T, class Memory>
  [[nodiscard]] Vector<T, Memory> in(const Vector<T, Memory>& unit) const {
    return slice(unit, offset, extent);
  }
};

/// The tensors of an acquired unit and of the adapters beside it, as layers read them. A layer names its tensors and
/// uses no offset, so a layer with further tensors, in this or another unit, needs no other interface.
template <class Scalar>
class WeightViews {
 public:
  WeightViews() = default;
  explicit WeightViews(Vector<const Scalar> unit, Vector<const Scalar> adapters = {})
      : unit_(unit), adapters_(adapters) {}

  [[nodiscard]] bool is_empty() const { return unit_.data() == nullptr; }
  Matrix<const Scalar> operator[](const MatrixRef& tensor) const {
    return tensor.in(tensor.in_adapters ? adapters_ : unit_);
  }
  Vector<const Scalar> operator[](const VectorRef& tensor) const { return tensor.in(unit_); }
  /// The matrix with its rows of zeros.
  [[nodiscard]] Matrix<const Scalar> padded(const MatrixRef& tensor) const { return tensor.padded_in(unit_); }

 private:
  Vector<const Scalar> unit_;
  Vector<const Scalar> adapters_;
};

/// The gradients of the tensors of a unit and of the adapters beside it, to which backward adds (ParameterAccess). A
/// frozen tensor has no gradient: the layer omits the product. A frozen unit has no memory.
class GradientViews {
 public:
  /// `table` outlives the object.
  GradientViews(const ParameterTable& table, int unit, UnitGradient gradient, UnitGradient of_adapters = {})
      : table_(&table), unit_(unit), gradient_(gradient), of_adapters_(of_adapters) {}

  /// Whether the tensor, or one in the same matrix, is trained.
  [[nodiscard]] bool wants(const MatrixRef& tensor) const {
    return table_->is_trainable(unit_, tensor.offset, tensor.rows * tensor.columns);
  }
  [[nodiscard]] bool wants(const VectorRef& tensor) const {
    return table_->is_trainable(unit_, tensor.offset, tensor.extent);
  }
  /// Whether no contribution was added yet: the first product of a matrix then overwrites it.
  [[nodiscard]] bool begins(const MatrixRef& tensor) const { return of(tensor).begins; }

  Matrix<float> operator[](const MatrixRef& tensor) const { return tensor.in(of(tensor).values); }
  Vector<float> operator[](const VectorRef& tensor) const { return tensor.in(gradient_.values); }
  /// The matrix with its rows of zeros.
  [[nodiscard]] Matrix<float> padded(const MatrixRef& tensor) const { return tensor.padded_in(gradient_.values); }

 private:
  [[nodiscard]] const UnitGradient& of(const MatrixRef& tensor) const {
    return tensor.in_adapters ? of_adapters_ : gradient_;
  }

  const ParameterTable* table_;
  int unit_;
  UnitGradient gradient_;
  UnitGradient of_adapters_;
};

/// Appends a tensor (rows, columns) with weight decay and normal initial values of standard deviation `deviation` to
/// the table's open unit. The tensor is a matrix of products; the first contribution overwrites its gradient.
MatrixRef add_matrix(ParameterTable& table, const std::string& name, std::int64_t rows, std::int64_t columns,
                     float deviation = 0.02F);

/// As add_matrix, with zeros as initial values.
MatrixRef add_zero_matrix(ParameterTable& table, const std::string& name, std::int64_t rows, std::int64_t columns);

/// Rows of a head's vocabulary including the rows of zeros behind it: a multiple of 8, so that every row of logits is
/// aligned to 16 bytes, as kernels for tensor cores require.
constexpr std::int64_t padded_vocabulary(std::int64_t rows) { return (rows + 7) / 8 * 8; }

/// Rows of a vocabulary that lie in one unit.
struct VocabularyBlock {
  int unit = 0;
  MatrixRef matrix;        ///< the rows' place in the unit
  std::int64_t first = 0;  ///< the token of the first row
};

/// Appends the (vocab, columns) tensor of a vocabulary. If `block` is 0, the whole tensor goes to the table's open
/// unit; otherwise blocks of `block` rows go to new units, named after `unit`. A vocabulary that is only looked up has
/// no rows of zeros, and contributions add to its gradient.
std::vector<VocabularyBlock> add_vocabulary(ParameterTable& table, const std::string& name, VocabularyUse use,
                                            std::int64_t vocab, std::int64_t columns, std::int64_t block,
                                            const std::string& unit, float deviation = 0.02F);

/// As add_matrix, for a table whose rows are looked up: all contributions add to its gradient.
MatrixRef add_lookup_table(ParameterTable& table, const std::string& name, std::int64_t rows, std::int64_t columns,
                           float deviation = 0.02F);

/// Appends a new tensor of `rows` rows directly below `above`; returns both as one matrix.
MatrixRef add_matrix_below(ParameterTable& table, const MatrixRef& above, const std::string& name, std::int64_t rows,
                           float deviation = 0.02F);

/// Appends a vector without weight decay (a bias or a norm's gain).
VectorRef add_vector(ParameterTable& table, const std::string& name, std::int64_t extent, Initial initial);

/// Appends a new vector of `extent` elements directly behind `before`; returns both as one vector.
VectorRef add_vector_behind(ParameterTable& table, const VectorRef& before, const std::string& name,
                            std::int64_t extent, Initial initial);

}  // namespace kozero::model
