// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mpi_check.cpp: MPI's codes in words.
#include <mpi.h>

#include <array>
#include <string>

#include <kozero/core/error.hpp>

#include "mpi_check.hpp"

namespace kozero::dist {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  int rank = 0;
  MPI_Error_string(code, text.data(), &length);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  throw Error(Failure::communication, "rank " + std::to_string(rank) + ": " + call +
                                          " failed: " + std::string(text.data(), static_cast<std::size_t>(length)));
}

}  // namespace kozero::dist
