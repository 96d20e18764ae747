// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <hdf5.h>

#include <kozero/io/hdf5_file.hpp>

namespace kozero::io {

namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

/// Creates the attribute of a file's root or a dataset and writes its one value.
bool write_value(hid_t owner, const std::string& name, hid_t file_type, hid_t memory_type, const void* value) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  if (!space.valid()) return false;
  const Hdf5Handle attribute(H5Acreate2(owner, name.c_str(), file_type, space.id(), H5P_DEFAULT, H5P_DEFAULT),
                             H5Aclose);
  return attribute.valid() && H5Awrite(attribute.id(), memory_type, value) >= 0;
}

/// A fixed-length UTF-8 type: unlike a variable length it needs no heap, whose writes ranks would have to order.
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
