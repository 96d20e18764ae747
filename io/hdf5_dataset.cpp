// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <hdf5.h>

#include <kozero/io/hdf5_file.hpp>
#include <kozero/io/hyperslabs.hpp>

namespace kozero::io {

namespace {

std::vector<hsize_t> sizes(const std::vector<std::int64_t>& numbers) { return {numbers.begin(), numbers.end()}; }

/// The dataset's space with the flat range selected.
Hdf5Handle selected(const Hdf5Handle& dataset, const std::vector<std::int64_t>& shape, std::int64_t begin,
                    std::int64_t end) {
  Hdf5Handle space(H5Dget_space(dataset.id()), H5Sclose);
  if (!space.valid() || H5Sselect_none(space.id()) < 0) return {};
  for (const Hyperslab& slab : hyperslabs(shape, begin, end)) {
    const auto offset = sizes(slab.offset);
    const auto count = sizes(slab.count);
    if (H5Sselect_hyperslab(space.id(), H5S_SELECT_OR, offset.data(), nullptr, count.data(), nullptr) < 0) return {};
  }
  return space;
}

}  // namespace

void Hdf5Dataset::read(std::int64_t begin, std::int64_t end, float* to) const {
  if (begin == end) return;
  const Hdf5Lock lock;
  const Hdf5Handle file_space = selected(handle_, shape_, begin, end);
  const auto extent = static_cast<hsize_t>(end - begin);
  const Hdf5Handle memory_space(H5Screate_simple(1, &extent, nullptr), H5Sclose);
  if (!file_space.valid() || !memory_space.valid() ||
      H5Dread(handle_.id(), H5T_NATIVE_FLOAT, memory_space.id(), file_space.id(), H5P_DEFAULT, to) < 0) {
    fail_hdf5(Failure::input, label_, "read");
  }
}

std::int64_t Hdf5Dataset::offset() const {
  const Hdf5Lock lock;
  const haddr_t first = H5Dget_offset(handle_.id());
  if (first == HADDR_UNDEF) fail_hdf5(Failure::write, label_, "find its place");
  return static_cast<std::int64_t>(first);
}

void Hdf5Dataset::close() {
  const Hdf5Lock lock;
  if (!handle_.release()) fail_hdf5(Failure::write, label_, "close");
}

}  // namespace kozero::io
