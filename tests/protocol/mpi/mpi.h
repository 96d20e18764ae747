// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mpi.h: the part of MPI that src/dist uses, for ranks that are threads of one process (../thread_mpi.cpp).
// A rank's handles are its own: a communicator handle knows the rank that holds it.
#pragma once
#include <cstddef>

namespace kozero::test {
struct Member;   // one rank of a communicator
struct Request;  // a nonblocking operation of one rank
struct Window;
Member* world_of_this_thread();
}  // namespace kozero::test

// NOLINTBEGIN: these names are MPI's.
using MPI_Comm = kozero::test::Member*;
using MPI_Request = kozero::test::Request*;
using MPI_Win = kozero::test::Window*;
using MPI_Aint = std::ptrdiff_t;
using MPI_Info = int;
using MPI_Errhandler = int;
using MPI_Status = int;

enum MPI_Datatype : int { MPI_BYTE = 1, MPI_CHAR = 1, MPI_INT = 4, MPI_DOUBLE = 8, MPI_INT64_T = 8 };  // bytes of each

#define MPI_COMM_WORLD (kozero::test::world_of_this_thread())
#define MPI_COMM_NULL nullptr
#define MPI_REQUEST_NULL nullptr
#define MPI_WIN_NULL nullptr
#define MPI_STATUS_IGNORE (static_cast<MPI_Status*>(nullptr))
#define MPI_STATUSES_IGNORE (static_cast<MPI_Status*>(nullptr))
#define MPI_IN_PLACE (reinterpret_cast<void*>(-1))
constexpr int MPI_SUCCESS = 0;
constexpr int MPI_ERRORS_RETURN = 0;
constexpr int MPI_INFO_NULL = 0;
constexpr int MPI_MODE_NOCHECK = 0;
constexpr int MPI_COMM_TYPE_SHARED = 0;
constexpr int MPI_MAX_ERROR_STRING = 512;

int MPI_Comm_rank(MPI_Comm comm, int* rank);
int MPI_Comm_size(MPI_Comm comm, int* size);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* duplicate);
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* node);
int MPI_Comm_free(MPI_Comm* comm);
int MPI_Error_string(int code, char* text, int* length);

int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request);
int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request);
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request);
int MPI_Ibcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request);
int MPI_Iallgather(const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type,
                   MPI_Comm comm, MPI_Request* request);
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status);
int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* statuses);
int MPI_Request_get_status(MPI_Request request, int* done, MPI_Status* status);
int MPI_Bcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm comm);

int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void* pointer, MPI_Win* window);
int MPI_Win_shared_query(MPI_Win window, int rank, MPI_Aint* bytes, int* unit, void* pointer);
int MPI_Win_lock_all(int mode, MPI_Win window);
int MPI_Win_unlock_all(MPI_Win window);
int MPI_Win_free(MPI_Win* window);
// NOLINTEND
