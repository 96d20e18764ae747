// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// file.hpp: an HDF5 file: groups, attributes, and contiguous f32 datasets that are read by flat ranges.
//   element i of a dataset  ->  bytes [offset + 4 i, offset + 4 i + 4) of the file, little endian
// A dataset is f32 little endian, its space allocated at creation and never filled; the owner of an element reads and
// writes it without libhdf5. Each call takes the lock, checks every return code, and throws Error(write or input) with
// path, object and HDF5's innermost message.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/hdf5/handle.hpp"
#include "io/posix/file.hpp"

namespace kozero::io {

class Hdf5Dataset {
 public:
  /// `bytes`: the file, for reading values.
  Hdf5Dataset(Hdf5Handle handle, std::string label, std::vector<std::int64_t> shape,
              std::shared_ptr<const FileDescriptor> bytes = nullptr)
      : handle_(std::move(handle)), label_(std::move(label)), shape_(std::move(shape)), bytes_(std::move(bytes)) {}

  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  /// Elements [begin, end) of the row-major array, of a file opened for reading; memory holds end - begin floats.
  void read(std::int64_t begin, std::int64_t end, float* to) const;
  /// The byte offset of the first element. Throws Error(input) for a dataset that is not contiguous.
  [[nodiscard]] std::int64_t offset() const;
  void write_attribute(const std::string& name, const std::string& text);
  void close();

 private:
  Hdf5Handle handle_;
  std::string label_;  ///< file and dataset, for messages
  std::vector<std::int64_t> shape_;
  std::shared_ptr<const FileDescriptor> bytes_;
};

class Hdf5File {
 public:
  Hdf5File(const std::string& path, Hdf5Access access, std::int64_t user_block = 0);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Also makes the groups above.
  void create_group(const std::string& name);
  /// Whether the file has an object at "a/b/c".
  [[nodiscard]] bool has_group(const std::string& name) const;
  Hdf5Dataset create_dataset(const std::string& name, const std::vector<std::int64_t>& shape);
  /// Also throws if the dataset is not f32.
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
  std::shared_ptr<const FileDescriptor> bytes_;  ///< if opened for reading
};

}  // namespace kozero::io
