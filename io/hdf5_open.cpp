// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <hdf5.h>

#include <algorithm>

#include <kozero/io/hdf5_open.hpp>

namespace kozero::io {

namespace {

constexpr hsize_t kAlignedFrom = 256 << 10;
constexpr std::int64_t kBorder = 1 << 20;

}  // namespace

std::string hdf5_version() {
  const Hdf5Lock lock;
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0) return "unknown";
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

Hdf5Handle open_hdf5(const std::string& path, Hdf5Access access, std::int64_t user_block) {
  const Hdf5Lock lock;
  const bool creates = access == Hdf5Access::create;
  const Failure failure = creates ? Failure::write : Failure::input;
  // HDF5 wants a user block to end on a border.
  const auto border = static_cast<hsize_t>(user_block > 0 ? std::min(user_block, kBorder) : kBorder);
  const Hdf5Handle properties(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  if (!properties.valid() || H5Pset_alignment(properties.id(), kAlignedFrom, border) < 0 ||
      H5Pset_libver_bounds(properties.id(), H5F_LIBVER_V18, H5F_LIBVER_LATEST) < 0) {
    fail_hdf5(failure, path, "set the file's access properties");
  }
  // The usual driver wants a path that a file can be found under again, which a MemoryFile's is not.
  if (creates && H5Pset_fapl_stdio(properties.id()) < 0) fail_hdf5(failure, path, "set the file's driver");
  const Hdf5Handle layout(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  if (!layout.valid() || H5Pset_userblock(layout.id(), static_cast<hsize_t>(user_block)) < 0) {
    fail_hdf5(failure, path, "set the file's layout");
  }
  Hdf5Handle file(creates ? H5Fcreate(path.c_str(), H5F_ACC_TRUNC, layout.id(), properties.id())
                          : H5Fopen(path.c_str(), H5F_ACC_RDONLY, properties.id()),
                  H5Fclose);
  if (!file.valid()) fail_hdf5(failure, path, creates ? "create" : "open");
  return file;
}

}  // namespace kozero::io
