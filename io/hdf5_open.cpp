// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <hdf5.h>
#include <mpi.h>

#include <kozero/io/hdf5_open.hpp>

namespace kozero::io {

namespace {

constexpr hsize_t kAlignedFrom = 256 << 10;
constexpr hsize_t kBorder = 1 << 20;

/// Data moves independently; metadata collectively, so that one rank reads it and none rereads it.
bool use_ranks(hid_t properties, const void* mpi_handle) {
  if (mpi_handle == nullptr) return true;
  const MPI_Comm communicator = *static_cast<const MPI_Comm*>(mpi_handle);
  return H5Pset_fapl_mpio(properties, communicator, MPI_INFO_NULL) >= 0 &&
         H5Pset_all_coll_metadata_ops(properties, true) >= 0 && H5Pset_coll_metadata_write(properties, true) >= 0;
}

}  // namespace

Hdf5Handle open_hdf5(const std::string& path, Hdf5Access access, const void* mpi_handle) {
  const Hdf5Lock lock;
  const bool creates = access == Hdf5Access::create;
  const Failure failure = creates ? Failure::write : Failure::input;
  const Hdf5Handle properties(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  if (!properties.valid() || H5Pset_alignment(properties.id(), kAlignedFrom, kBorder) < 0 ||
      H5Pset_libver_bounds(properties.id(), H5F_LIBVER_V18, H5F_LIBVER_LATEST) < 0 ||
      !use_ranks(properties.id(), mpi_handle)) {
    fail_hdf5(failure, path, "set the file's access properties");
  }
  Hdf5Handle file(creates ? H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, properties.id())
                          : H5Fopen(path.c_str(), H5F_ACC_RDONLY, properties.id()),
                  H5Fclose);
  if (!file.valid()) fail_hdf5(failure, path, creates ? "create" : "open");
  return file;
}

}  // namespace kozero::io
