// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// file.cpp: calls of libhdf5 for groups, datasets and attributes, each with its lock and its error text.
#include <hdf5.h>
#include <algorithm>

#include <kozero/core/error.hpp>
#include "io/hdf5/file.hpp"

namespace kozero::io {

namespace {

/// H5Literate's visitor: collects link names.
herr_t collect_name(hid_t /*group*/, const char* name, const H5L_info_t* /*info*/, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

std::string label_of(const std::string& path, const std::string& name) { return path + ": " + name; }

/// Contiguous, space allocated at creation, never filled, since the owners write every element.
Hdf5Handle plain_layout() {
  Hdf5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  const bool set = properties.valid() && H5Pset_layout(properties.id(), H5D_CONTIGUOUS) >= 0 &&
                   H5Pset_alloc_time(properties.id(), H5D_ALLOC_TIME_EARLY) >= 0 &&
                   H5Pset_fill_time(properties.id(), H5D_FILL_TIME_NEVER) >= 0;
  return set ? std::move(properties) : Hdf5Handle();
}

bool is_f32(const Hdf5Handle& dataset) {
  const Hdf5Handle type(H5Dget_type(dataset.id()), H5Tclose);
  return type.valid() && H5Tequal(type.id(), H5T_IEEE_F32LE) > 0;
}

bool read_shape(const Hdf5Handle& dataset, std::vector<std::int64_t>& shape) {
  const Hdf5Handle space(H5Dget_space(dataset.id()), H5Sclose);
  const int dims = space.valid() ? H5Sget_simple_extent_ndims(space.id()) : -1;
  if (dims < 0) return false;
  std::vector<hsize_t> extents(static_cast<std::size_t>(dims));
  if (H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr) < 0) return false;
  shape.assign(extents.begin(), extents.end());
  return true;
}

constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

/// Creates the attribute of a file's root or a dataset and writes its one value.
bool write_value(hid_t owner, const std::string& name, hid_t file_type, hid_t memory_type, const void* value) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  if (!space.valid()) return false;
  const Hdf5Handle attribute(H5Acreate2(owner, name.c_str(), file_type, space.id(), H5P_DEFAULT, H5P_DEFAULT),
                             H5Aclose);
  return attribute.valid() && H5Awrite(attribute.id(), memory_type, value) >= 0;
}

/// A fixed-length UTF-8 type, which needs no heap in the file.
Hdf5Handle text_type(std::size_t bytes) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  const bool set = type.valid() && H5Tset_size(type.id(), bytes) >= 0 && H5Tset_cset(type.id(), H5T_CSET_UTF8) >= 0 &&
                   H5Tset_strpad(type.id(), H5T_STR_NULLTERM) >= 0;
  return set ? std::move(type) : Hdf5Handle();
}

bool write_text(hid_t owner, const std::string& name, const std::string& text) {
  const Hdf5Handle type = text_type(text.size() + 1);
  return type.valid() && write_value(owner, name, type.id(), type.id(), text.c_str());
}

/// Whether the attribute is one value and not an array.
bool is_single(const Hdf5Handle& attribute) {
  const Hdf5Handle space(H5Aget_space(attribute.id()), H5Sclose);
  return space.valid() && H5Sget_simple_extent_npoints(space.id()) == 1;
}

}  // namespace

Hdf5File::Hdf5File(const std::string& path, Hdf5Access access, std::int64_t user_block)
    : path_(path), handle_(open_hdf5(path, access, user_block)) {
  if (access == Hdf5Access::read) bytes_ = std::make_shared<FileDescriptor>(path, FileDescriptor::Use::read);
}

void Hdf5File::create_group(const std::string& name) {
  const Hdf5Lock lock;
  const Hdf5Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  Hdf5Handle group;
  if (links.valid() && H5Pset_create_intermediate_group(links.id(), 1) >= 0) {
    group = Hdf5Handle(H5Gcreate2(handle_.id(), name.c_str(), links.id(), H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  }
  if (!group.valid()) fail_hdf5(Failure::write, path_, "create group " + name);
}

bool Hdf5File::has_group(const std::string& name) const {
  const Hdf5Lock lock;
  for (std::size_t end = name.find('/');; end = name.find('/', end + 1)) {
    const htri_t exists = H5Lexists(handle_.id(), name.substr(0, end).c_str(), H5P_DEFAULT);
    if (exists < 0) fail_hdf5(Failure::input, path_, "look for " + name);
    if (exists == 0) return false;
    if (end == std::string::npos) return true;
  }
}

Hdf5Dataset Hdf5File::create_dataset(const std::string& name, const std::vector<std::int64_t>& shape) {
  const Hdf5Lock lock;
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const Hdf5Handle space(H5Screate_simple(static_cast<int>(shape.size()), extents.data(), nullptr), H5Sclose);
  const Hdf5Handle layout = plain_layout();
  Hdf5Handle dataset;
  if (space.valid() && layout.valid()) {
    dataset = Hdf5Handle(
        H5Dcreate2(handle_.id(), name.c_str(), H5T_IEEE_F32LE, space.id(), H5P_DEFAULT, layout.id(), H5P_DEFAULT),
        H5Dclose);
  }
  if (!dataset.valid()) fail_hdf5(Failure::write, label_of(path_, name), "create dataset");
  return Hdf5Dataset(std::move(dataset), label_of(path_, name), shape);
}

Hdf5Dataset Hdf5File::open_dataset(const std::string& name) const {
  const Hdf5Lock lock;
  const std::string label = label_of(path_, name);
  Hdf5Handle dataset(H5Dopen2(handle_.id(), name.c_str(), H5P_DEFAULT), H5Dclose);
  std::vector<std::int64_t> shape;
  if (!dataset.valid() || !read_shape(dataset, shape)) fail_hdf5(Failure::input, label, "open dataset");
  if (!is_f32(dataset)) throw Error(Failure::input, label + ": its elements are not 32-bit floats, little endian");
  return Hdf5Dataset(std::move(dataset), label, std::move(shape), bytes_);
}

std::vector<std::string> Hdf5File::names(const std::string& group) const {
  const Hdf5Lock lock;
  std::vector<std::string> names;
  if (H5Literate_by_name(handle_.id(), group.c_str(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect_name, &names,
                         H5P_DEFAULT) < 0) {
    fail_hdf5(Failure::input, path_, "list group " + group);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void Hdf5File::close() {
  const Hdf5Lock lock;
  if (H5Fflush(handle_.id(), H5F_SCOPE_GLOBAL) < 0) fail_hdf5(Failure::write, path_, "flush");
  if (!handle_.release()) fail_hdf5(Failure::write, path_, "close");
}

void Hdf5Dataset::read(std::int64_t begin, std::int64_t end, float* to) const {
  require(bytes_ != nullptr && 0 <= begin && begin <= end, label_ + ": read outside the dataset, or of a new file");
  if (begin == end) return;
  const auto count = static_cast<std::size_t>(end - begin);
  bytes_->read_at({reinterpret_cast<char*>(to), count * sizeof(float)},
                  offset() + begin * static_cast<std::int64_t>(sizeof(float)));
}

std::int64_t Hdf5Dataset::offset() const {
  const Hdf5Lock lock;
  const haddr_t first = H5Dget_offset(handle_.id());
  if (first != HADDR_UNDEF) return static_cast<std::int64_t>(first);
  throw Error(Failure::input,
              label_ + ": its elements do not lie one after another in the file (a contiguous dataset)");
}

void Hdf5Dataset::close() {
  const Hdf5Lock lock;
  if (!handle_.release()) fail_hdf5(Failure::write, label_, "close");
}

void Hdf5File::write_attribute(const std::string& name, const std::string& text) {
  const Hdf5Lock lock;
  if (!write_text(handle_.id(), name, text)) fail_hdf5(Failure::write, path_, "write attribute " + name);
}

void Hdf5Dataset::write_attribute(const std::string& name, const std::string& text) {
  const Hdf5Lock lock;
  if (!write_text(handle_.id(), name, text)) fail_hdf5(Failure::write, label_, "write attribute " + name);
}

void Hdf5File::write_attribute(const std::string& name, std::int64_t number) {
  const Hdf5Lock lock;
  if (!write_value(handle_.id(), name, H5T_STD_I64LE, H5T_NATIVE_INT64, &number)) {
    fail_hdf5(Failure::write, path_, "write attribute " + name);
  }
}

Hdf5Handle Hdf5File::open_attribute(const std::string& name) const {
  Hdf5Handle attribute(H5Aopen(handle_.id(), name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) fail_hdf5(Failure::input, path_, "open attribute " + name);
  if (!is_single(attribute)) throw Error(Failure::input, path_ + ": attribute " + name + " is not one value");
  return attribute;
}

std::string Hdf5File::read_text_attribute(const std::string& name) const {
  const Hdf5Lock lock;
  const Hdf5Handle attribute = open_attribute(name);
  const Hdf5Handle type(H5Aget_type(attribute.id()), H5Tclose);
  const std::size_t bytes = type.valid() ? H5Tget_size(type.id()) : 0;
  if (!type.valid() || H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) != 0 ||
      bytes > kMaxTextBytes) {
    throw Error(Failure::input, path_ + ": attribute " + name + " is not a text of fixed length");
  }
  std::string text(bytes, '\0');
  if (H5Aread(attribute.id(), type.id(), text.data()) < 0) fail_hdf5(Failure::input, path_, "read attribute " + name);
  return text.c_str();
}

std::int64_t Hdf5File::read_number_attribute(const std::string& name) const {
  const Hdf5Lock lock;
  const Hdf5Handle attribute = open_attribute(name);
  const Hdf5Handle type(H5Aget_type(attribute.id()), H5Tclose);
  if (!type.valid() || H5Tget_class(type.id()) != H5T_INTEGER) {
    throw Error(Failure::input, path_ + ": attribute " + name + " is not an integer");
  }
  std::int64_t number = 0;
  if (H5Aread(attribute.id(), H5T_NATIVE_INT64, &number) < 0) {
    fail_hdf5(Failure::input, path_, "read attribute " + name);
  }
  return number;
}

}  // namespace kozero::io
