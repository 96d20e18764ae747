// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mpi.h: the part of MPI that src/distributed uses, for ranks that are threads of one process (../thread_mpi.cpp).
// A rank's handles are its own: a communicator handle knows the rank that holds it.
#pragma once
namespace kozero::test {
struct Member;   // one rank of a communicator
struct Request;  // a nonblocking operation of one rank
Member* world_of_this_thread();
}  // namespace kozero::test

// NOLINTBEGIN: these names are MPI's.
using MPI_Comm = kozero::test::Member*;
using MPI_Request = kozero::test::Request*;
using MPI_Info = int;
using MPI_Errhandler = int;
using MPI_Group = int;
using MPI_Status = int;

enum MPI_Datatype : int {  // bytes of each
  MPI_BYTE = 1,
  MPI_CHAR = 1,
  MPI_INT = 4,
  MPI_FLOAT = 4,
  MPI_DOUBLE = 8,
  MPI_INT64_T = 8,
  MPI_UINT64_T = 8
};

#define MPI_COMM_WORLD (kozero::test::world_of_this_thread())
#define MPI_COMM_NULL nullptr
#define MPI_REQUEST_NULL nullptr
#define MPI_STATUS_IGNORE (static_cast<MPI_Status*>(nullptr))
#define MPI_STATUSES_IGNORE (static_cast<MPI_Status*>(nullptr))
constexpr int MPI_SUCCESS = 0;
constexpr int MPI_CONGRUENT = 1;
constexpr int MPI_UNEQUAL = 3;
constexpr int MPI_MAX_PROCESSOR_NAME = 128;
constexpr int MPI_ERRORS_RETURN = 0;
constexpr int MPI_INFO_NULL = 0;
constexpr int MPI_COMM_TYPE_SHARED = 0;
constexpr int MPI_MAX_ERROR_STRING = 512;
constexpr int MPI_SUM = 0;
#define MPI_IN_PLACE (static_cast<const void*>(nullptr))

int MPI_Comm_rank(MPI_Comm comm, int* rank);
int MPI_Comm_size(MPI_Comm comm, int* size);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* duplicate);
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* node);
int MPI_Comm_compare(MPI_Comm one, MPI_Comm other, int* result);
int MPI_Comm_group(MPI_Comm comm, MPI_Group* group);
int MPI_Group_translate_ranks(MPI_Group from, int count, const int* ranks, MPI_Group to, int* translated);
int MPI_Group_free(MPI_Group* group);
int MPI_Comm_free(MPI_Comm* comm);
int MPI_Error_string(int code, char* text, int* length);

int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request);
int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request);
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request);
int MPI_Ibcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request);
int MPI_Iallgather(const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type,
                   MPI_Comm comm, MPI_Request* request);
/// Adds numbers of MPI_UINT64_T in place.
int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, int operation, MPI_Comm comm,
                   MPI_Request* request);
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status);
int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* statuses);
int MPI_Request_get_status(MPI_Request request, int* done, MPI_Status* status);
int MPI_Bcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Allgather(const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type,
                  MPI_Comm comm);
// NOLINTEND
