// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "mpi_check.hpp"
#include "shared_arrays.hpp"

namespace kozero::dist {
namespace {

constexpr std::int64_t kPage = 4096;

}  // namespace

std::int64_t SharedArrays::room_for(std::int64_t bytes) { return (bytes / kPage + 2) * kPage; }

void* SharedArrays::add(std::int64_t bytes) {
  Array array;
  array.bytes = bytes;
  void* own = nullptr;
  check_mpi(MPI_Win_allocate_shared(room_for(bytes), 1, MPI_INFO_NULL, comm_, static_cast<void*>(&own), &array.window),
            "MPI_Win_allocate_shared");
  check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, array.window), "MPI_Win_lock_all");
  int size = 0;
  check_mpi(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  for (int r = 0; r < size; ++r) {
    MPI_Aint extent = 0;
    int unit = 0;
    void* begin = nullptr;
    check_mpi(MPI_Win_shared_query(array.window, r, &extent, &unit, static_cast<void*>(&begin)),
              "MPI_Win_shared_query");
    array.begins.push_back(static_cast<char*>(begin));
  }
  array.own = static_cast<char*>(own);
  arrays_.push_back(std::move(array));
  return own;
}

void SharedArrays::remove() {
  for (auto& array : arrays_) {
    MPI_Win_unlock_all(array.window);
    MPI_Win_free(&array.window);
  }
  arrays_.clear();
}

SharedArrays::Place SharedArrays::place_of(const void* pointer) const {
  const auto* byte = static_cast<const char*>(pointer);
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const Array& array = arrays_[i];
    if (byte >= array.own && byte <= array.own + array.bytes) {
      return {static_cast<std::int64_t>(i), byte - array.own};
    }
  }
  return {};
}

char* SharedArrays::at(int rank, Place place) const {
  return arrays_[static_cast<std::size_t>(place.array)].begins[static_cast<std::size_t>(rank)] + place.offset;
}

std::int64_t SharedArrays::bytes() const {
  std::int64_t sum = 0;
  for (const auto& array : arrays_) sum += array.bytes;
  return sum;
}

}  // namespace kozero::dist
