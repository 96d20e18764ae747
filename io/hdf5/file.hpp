// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// file.hpp: an HDF5 file: groups, attributes, and contiguous f32 datasets that are read by flat ranges.
// A flat range of a row-major dataset is read as a union of hyperslabs. Failures throw Error with path and object.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/hdf5/handle.hpp"

namespace kozero::io {

// A flat range of a row-major array as boxes of its dimensions: pure arithmetic.
//   shape (4, 5), flat [3, 17)  ->  row 0 columns 3-4 | rows 1-2 | row 3 columns 0-1
// At most 2d - 1 boxes for d dimensions; they are disjoint and, in order, hold the range's elements in order.

struct Hyperslab {
  std::vector<std::int64_t> offset, count;
};

/// Boxes of [begin, end); none where the range is empty. A range outside the array is an internal error.
std::vector<Hyperslab> hyperslabs(const std::vector<std::int64_t>& shape, std::int64_t begin, std::int64_t end);

// What KoZeRO does with an HDF5 file: groups, f32 datasets laid out and read by flat ranges, attributes.
// A dataset is contiguous, f32 little endian, its space taken at once and never filled: element i lies at byte
// offset() + 4 i of the file, where its owner writes it with no help of libhdf5. Each call takes the lock, reads every
// return code, and throws Error(write or input) with path, object and HDF5's innermost message.

class Hdf5Dataset {
 public:
  Hdf5Dataset(Hdf5Handle handle, std::string label, std::vector<std::int64_t> shape)
      : handle_(std::move(handle)), label_(std::move(label)), shape_(std::move(shape)) {}

  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  /// Elements [begin, end) of the row-major array; memory holds end - begin floats.
  void read(std::int64_t begin, std::int64_t end, float* to) const;
  /// The file's byte where the first element lies.
  [[nodiscard]] std::int64_t offset() const;
  void write_attribute(const std::string& name, const std::string& text);
  void close();

 private:
  Hdf5Handle handle_;
  std::string label_;  ///< file and dataset, for messages
  std::vector<std::int64_t> shape_;
};

class Hdf5File {
 public:
  Hdf5File(const std::string& path, Hdf5Access access, std::int64_t user_block = 0)
      : path_(path), handle_(open_hdf5(path, access, user_block)) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Makes the groups above it too.
  void create_group(const std::string& name);
  /// Whether the file holds the object at "a/b/c".
  [[nodiscard]] bool has_group(const std::string& name) const;
  Hdf5Dataset create_dataset(const std::string& name, const std::vector<std::int64_t>& shape);
  /// Also throws where the dataset is not of f32.
  [[nodiscard]] Hdf5Dataset open_dataset(const std::string& name) const;
  /// The names in a group, sorted.
  [[nodiscard]] std::vector<std::string> names(const std::string& group) const;

  // Attributes of the root group.
  void write_attribute(const std::string& name, const std::string& text);
  void write_attribute(const std::string& name, std::int64_t number);
  [[nodiscard]] std::string read_text_attribute(const std::string& name) const;
  [[nodiscard]] std::int64_t read_number_attribute(const std::string& name) const;

  /// Flushes to the disk and closes; a file that is only destroyed may be incomplete.
  void close();

 private:
  [[nodiscard]] Hdf5Handle open_attribute(const std::string& name) const;

  std::string path_;
  Hdf5Handle handle_;
};

}  // namespace kozero::io
