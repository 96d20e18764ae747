// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// one_process.cpp: maps a shared file once for all ranks, which are threads of one process, since ThreadSanitizer takes
// two mappings of one page for different memory. (The linker sends mmap and munmap here.) Heartbeat and watchdog are
// left out too (support/without_liveness.cpp), since their locks would order the ranks. At the end, the MPI functions
// that involve no other rank.
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include <mpi.h>

#include <kozero/distributed/environment.hpp>

#include "thread_mpi.hpp"

int kozero::distributed::known_rank() { return 0; }

namespace {

struct Shared {
  void* begin = nullptr;
  int users = 0;
};
std::mutex mutex;
std::map<std::pair<dev_t, ino_t>, Shared> shared;

}  // namespace

extern "C" {
void* __real_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset);  // NOLINT
int __real_munmap(void* begin, std::size_t bytes);                                                  // NOLINT

void* __wrap_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {  // NOLINT
  struct stat status {};
  if ((flags & MAP_SHARED) == 0 || fstat(file, &status) != 0) {
    return __real_mmap(at, bytes, protection, flags, file, offset);
  }
  const kozero::test::Unseen unseen;
  const std::lock_guard lock(mutex);
  Shared& mapping = shared[{status.st_dev, status.st_ino}];
  if (mapping.users++ == 0) mapping.begin = __real_mmap(at, bytes, protection, flags, file, offset);
  return mapping.begin;
}

int __wrap_munmap(void* begin, std::size_t bytes) {  // NOLINT
  const kozero::test::Unseen unseen;
  const std::lock_guard lock(mutex);
  for (auto mapping = shared.begin(); mapping != shared.end(); ++mapping) {
    if (mapping->second.begin != begin) continue;
    if (--mapping->second.users > 0) return 0;
    shared.erase(mapping);
    break;
  }
  return __real_munmap(begin, bytes);
}
}  // extern "C"

// Every communicator has all ranks of the job, in the same order.
int MPI_Comm_group(MPI_Comm /*comm*/, MPI_Group* group) {
  *group = 0;
  return MPI_SUCCESS;
}

int MPI_Group_translate_ranks(MPI_Group /*from*/, int count, const int* ranks, MPI_Group /*to*/, int* translated) {
  std::copy_n(ranks, count, translated);
  return MPI_SUCCESS;
}

int MPI_Group_free(MPI_Group* /*group*/) { return MPI_SUCCESS; }

int MPI_Error_string(int /*code*/, char* text, int* length) {
  *length = 0;
  *text = '\0';
  return MPI_SUCCESS;
}
