// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mpi_check.hpp: every return code of MPI is read.
#pragma once

namespace kozero::dist {

/// Throws Error(communication) with this rank, the call and MPI's text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

}  // namespace kozero::dist
