// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <hdf5.h>

#include <algorithm>

#include <kozero/io/hdf5_file.hpp>

namespace kozero::io {

namespace {

/// H5Literate's visitor: collects link names.
herr_t collect_name(hid_t /*group*/, const char* name, const H5L_info_t* /*info*/, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

std::string label_of(const std::string& path, const std::string& name) { return path + ": " + name; }

/// Contiguous, space taken at creation, never filled: every element is written by its owner.
Hdf5Handle plain_layout() {
  Hdf5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  const bool set = properties.valid() && H5Pset_layout(properties.id(), H5D_CONTIGUOUS) >= 0 &&
                   H5Pset_alloc_time(properties.id(), H5D_ALLOC_TIME_EARLY) >= 0 &&
                   H5Pset_fill_time(properties.id(), H5D_FILL_TIME_NEVER) >= 0;
  return set ? std::move(properties) : Hdf5Handle();
}

bool is_f32(const Hdf5Handle& dataset) {
  const Hdf5Handle type(H5Dget_type(dataset.id()), H5Tclose);
  return type.valid() && H5Tget_class(type.id()) == H5T_FLOAT && H5Tget_size(type.id()) == sizeof(float);
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

}  // namespace

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
  for (std::size_t end = name.find('/'); ; end = name.find('/', end + 1)) {
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
  if (!is_f32(dataset)) throw Error(Failure::input, label + ": its elements are not 32-bit floats");
  return Hdf5Dataset(std::move(dataset), label, std::move(shape));
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

}  // namespace kozero::io
