// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// thread_mpi.cpp: communicators as groups of threads; see thread_mpi.hpp for the orders reported to ThreadSanitizer.
#include "thread_mpi.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

extern "C" {
void __tsan_acquire(void* address);                                                                  // NOLINT
void __tsan_release(void* address);                                                                  // NOLINT
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),  // NOLINT
                                              void (*on_free)(const volatile void*));
}

namespace kozero::test {
struct Process;
namespace {

/// A message, created when its first side is posted. ThreadSanitizer derives the orders that it makes from its address.
struct Message {
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
  bool sent = false, received = false;  // whether the side is posted
  bool moved = false;
};

/// A collective: the k-th call on its communicator on every rank.
struct Meeting {
  int arrived = 0;
  std::vector<std::vector<char>> given;  // by rank
  std::vector<bool> here;
};

struct Group {
  int size = 0;
  std::map<std::array<int, 3>, std::deque<Message*>> channels;  // (from, to, tag): messages that one side has posted
  std::deque<std::unique_ptr<Meeting>> meetings;
  std::vector<Group*> duplicates;   // the k-th duplicate that each rank makes
  std::vector<Process*> processes;  // by rank
};

// No memory is freed before the program ends, since a lost rank may still use it.
std::mutex mutex;
std::deque<std::unique_ptr<Group>> groups;
std::deque<std::unique_ptr<Message>> messages;
std::deque<std::unique_ptr<Member>> members;
std::deque<std::unique_ptr<Process>> processes;

thread_local Member* this_world = nullptr;
thread_local std::mt19937_64 chance;  // NOLINT: seeded by run_ranks

Group* new_group(int size) {
  groups.push_back(std::make_unique<Group>());
  groups.back()->size = size;
  return groups.back().get();
}

}  // namespace

/// A rank in all its communicators: any call by the rank makes progress in all of them.
struct Process {
  std::vector<Message*> to_move;  // messages that this rank must move
  std::vector<Request*> open;     // its unfinished collectives; never moved, as check_free reads it
  Process() { open.reserve(64); }
};

struct Member {
  Group* group = nullptr;
  int rank = 0;
  Process* process = nullptr;
  std::size_t collectives = 0, duplicates = 0;  // numbers of those that this rank began
};

struct Request {
  Member* member = nullptr;
  Message* message = nullptr;  // or
  Meeting* meeting = nullptr;
  enum { barrier, broadcast, gather, sum } collective = barrier;
  int root = 0;
  void* to = nullptr;
  bool over = false;  // a collective: its result has arrived
};

namespace {
void make_progress(Process* process);

/// Ends the program if this rank frees the memory of its own unfinished collective. ThreadSanitizer reports a write to
/// freed memory only until that memory is allocated again.
void check_free(const volatile void* memory) {
  if (this_world == nullptr || memory == nullptr) return;
  const Unseen unseen;
  for (const Request* request : this_world->process->open) {
    if (request->to != memory) continue;
    static constexpr char kText[] = "FAILED: the memory of an unfinished collective was freed\n";
    [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, kText, sizeof(kText) - 1);  // allocates nothing
    std::_Exit(1);
  }
}

}  // namespace

Member* world_of_this_thread() { return this_world; }

void sleep_at_random() {
  const Unseen unseen;
  const auto draw = chance() % 64;
  if (draw < 3) std::this_thread::sleep_for(std::chrono::microseconds(chance() % 300));
  if (draw < 20) std::this_thread::yield();
}

void make_progress_for(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    make_progress(this_world->process);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void run_ranks(int num_ranks, std::uint64_t seed, const std::function<void(MPI_Comm world)>& body) {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, std::size_t) {}, check_free);  // installs nothing if one is null
  if (installed == 0) std::abort();
  std::vector<Member*> world;
  {
    const Unseen unseen;
    const std::lock_guard lock(mutex);
    Group* group = new_group(num_ranks);
    for (int r = 0; r < num_ranks; ++r) {
      members.push_back(std::make_unique<Member>());
      members.back()->group = group;
      members.back()->rank = r;
      processes.push_back(std::make_unique<Process>());
      members.back()->process = processes.back().get();
      group->processes.push_back(processes.back().get());
      world.push_back(members.back().get());
    }
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < num_ranks; ++r) {
    threads.emplace_back([&, r] {
      this_world = world[static_cast<std::size_t>(r)];
      chance.seed(seed * 1000 + static_cast<std::uint64_t>(r));
      body(this_world);
    });
  }
  for (auto& thread : threads) thread.join();
}

namespace {

/// Moves the bytes of the messages that this rank must move.
void move_messages(Process* process) {
  std::vector<Message*> mine;
  {
    const Unseen unseen;
    const std::lock_guard lock(mutex);
    mine = std::exchange(process->to_move, {});
  }
  for (Message* message : mine) {
    __tsan_acquire(message);  // both sides have posted it
    std::memcpy(message->to, message->from, message->bytes);
    __tsan_release(message);
    const Unseen unseen;
    const std::lock_guard lock(mutex);
    message->moved = true;
  }
}

bool all_came(const Request& request) {
  if (request.collective == Request::broadcast) return request.meeting->here[static_cast<std::size_t>(request.root)];
  return request.meeting->arrived == request.member->group->size;
}

/// Stores the sum of all ranks' numbers.
void add_all(const Meeting& meeting, char* to) {
  std::vector<std::uint64_t> sum(meeting.given.front().size() / sizeof(std::uint64_t));
  for (const auto& bytes : meeting.given) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      std::uint64_t addend = 0;
      std::memcpy(&addend, bytes.data() + i * sizeof(addend), sizeof(addend));
      sum[i] += addend;
    }
  }
  std::memcpy(to, sum.data(), meeting.given.front().size());
}

/// Stores the result of a collective.
void take(const Request& request) {
  auto* to = static_cast<char*>(request.to);
  if (request.collective == Request::broadcast && request.member->rank != request.root) {
    const auto& bytes = request.meeting->given[static_cast<std::size_t>(request.root)];
    std::memcpy(to, bytes.data(), bytes.size());
  }
  if (request.collective == Request::sum) add_all(*request.meeting, to);
  if (request.collective != Request::gather) return;
  for (const auto& bytes : request.meeting->given) {
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
}

/// Finishes this rank's collectives that all ranks have joined.
void end_collectives(Process* process) {
  std::vector<Request*> ending;
  {
    const Unseen unseen;
    const std::lock_guard lock(mutex);
    const auto first = std::stable_partition(process->open.begin(), process->open.end(),
                                             [](Request* request) { return !all_came(*request); });
    ending.assign(first, process->open.end());
    process->open.erase(first, process->open.end());
  }
  for (Request* request : ending) {
    __tsan_acquire(request->meeting);
    take(*request);
    const Unseen unseen;
    request->over = true;
  }
}

void make_progress(Process* process) {
  move_messages(process);
  end_collectives(process);
}

MPI_Request post(Member* member, bool sends, const void* from, void* to, std::size_t bytes, int peer, int tag) {
  sleep_at_random();
  const std::array<int, 3> ends = {sends ? member->rank : peer, sends ? peer : member->rank, tag};
  Message* message = nullptr;
  {
    const Unseen unseen;
    const std::lock_guard lock(mutex);
    auto& channel = member->group->channels[ends];
    for (Message* other : channel) {  // the oldest message without this side
      if (message == nullptr && !(sends ? other->sent : other->received)) message = other;
    }
    if (message == nullptr) {
      messages.push_back(std::make_unique<Message>());
      message = messages.back().get();
      channel.push_back(message);
    }
  }
  __tsan_release(message);
  const Unseen unseen;
  const std::lock_guard lock(mutex);
  if (sends) {
    message->sent = true;
    message->from = from;
    message->bytes = bytes;
  } else {
    message->received = true;
    message->to = to;
  }
  auto* request = new Request{.member = member, .message = message};
  if (!message->sent || !message->received) return request;
  member->group->channels[ends].pop_front();
  const int mover = chance() % 2 == 0 ? ends[0] : ends[1];
  member->group->processes[static_cast<std::size_t>(mover)]->to_move.push_back(message);
  return request;
}

/// This rank joins its next collective and contributes `bytes`.
MPI_Request meet(Member* member, decltype(Request::collective) collective, int root, const void* from, void* to,
                 std::size_t bytes) {
  sleep_at_random();
  std::vector<char> given;
  const bool gives = collective == Request::gather || collective == Request::sum ||
                     (collective == Request::broadcast && member->rank == root);
  if (gives && bytes > 0) {
    const auto* begin = static_cast<const char*>(from);
    given.assign(begin, begin + bytes);
  }
  Meeting* meeting = nullptr;
  {
    const Unseen unseen;
    const std::lock_guard lock(mutex);
    auto& meetings = member->group->meetings;
    if (member->collectives == meetings.size()) {
      meetings.push_back(std::make_unique<Meeting>());
      meetings.back()->given.resize(static_cast<std::size_t>(member->group->size));
      meetings.back()->here.resize(static_cast<std::size_t>(member->group->size));
    }
    meeting = meetings[member->collectives++].get();
  }
  if (gives || collective == Request::barrier) __tsan_release(meeting);
  const Unseen unseen;
  const std::lock_guard lock(mutex);
  meeting->given[static_cast<std::size_t>(member->rank)] = std::move(given);
  meeting->here[static_cast<std::size_t>(member->rank)] = true;
  ++meeting->arrived;
  auto* request = new Request{.member = member, .meeting = meeting, .collective = collective, .root = root, .to = to};
  member->process->open.push_back(request);
  return request;
}

bool is_over(const Request& request) {
  const Unseen unseen;
  const std::lock_guard lock(mutex);
  return request.message != nullptr ? request.message->moved : request.over;
}

/// Whether the request has completed; it is then freed, and its orders hold.
bool complete(MPI_Request* request) {
  if (*request == nullptr) return true;
  if (!is_over(**request)) return false;
  if ((*request)->message != nullptr) __tsan_acquire((*request)->message);
  const Unseen unseen;
  delete *request;
  *request = nullptr;
  return true;
}

void wait(MPI_Request request) {
  make_progress(request->member->process);
  for (Process* process = request->member->process; !complete(&request); make_progress(process))
    std::this_thread::yield();
}

}  // namespace
}  // namespace kozero::test

using namespace kozero::test;

int MPI_Comm_rank(MPI_Comm comm, int* rank) {
  *rank = comm->rank;
  return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int* size) {
  *size = comm->group->size;
  return MPI_SUCCESS;
}

int MPI_Comm_set_errhandler(MPI_Comm /*comm*/, MPI_Errhandler /*handler*/) { return MPI_SUCCESS; }

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* duplicate) {
  {
    const Unseen unseen;
    const std::lock_guard lock(mutex);
    auto& duplicates = comm->group->duplicates;
    if (comm->duplicates == duplicates.size()) {
      duplicates.push_back(new_group(comm->group->size));
      duplicates.back()->processes = comm->group->processes;
    }
    members.push_back(std::make_unique<Member>());
    *duplicate = members.back().get();
    (*duplicate)->group = duplicates[comm->duplicates++];
    (*duplicate)->rank = comm->rank;
    (*duplicate)->process = comm->process;
  }
  wait(meet(comm, Request::barrier, 0, nullptr, nullptr, 0));
  return MPI_SUCCESS;
}

int MPI_Comm_split_type(MPI_Comm comm, int /*type*/, int /*key*/, MPI_Info /*info*/, MPI_Comm* node) {
  return MPI_Comm_dup(comm, node);
}

int MPI_Comm_compare(MPI_Comm one, MPI_Comm other, int* result) {
  *result = one->group->processes == other->group->processes ? MPI_CONGRUENT : MPI_UNEQUAL;
  return MPI_SUCCESS;
}

int MPI_Comm_free(MPI_Comm* comm) {
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}

int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  *request = post(comm, true, from, nullptr, static_cast<std::size_t>(count) * type, to, tag);
  return MPI_SUCCESS;
}

int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  *request = post(comm, false, nullptr, to, static_cast<std::size_t>(count) * type, from, tag);
  return MPI_SUCCESS;
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  *request = meet(comm, Request::barrier, 0, nullptr, nullptr, 0);
  return MPI_SUCCESS;
}

int MPI_Ibcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  *request = meet(comm, Request::broadcast, root, bytes, bytes, static_cast<std::size_t>(count) * type);
  return MPI_SUCCESS;
}

int MPI_Iallgather(const void* from, int count, MPI_Datatype type, void* to, int /*to_count*/, MPI_Datatype /*to_type*/,
                   MPI_Comm comm, MPI_Request* request) {
  *request = meet(comm, Request::gather, 0, from, to, static_cast<std::size_t>(count) * type);
  return MPI_SUCCESS;
}

int MPI_Iallreduce(const void* /*from*/, void* to, int count, MPI_Datatype type, int /*operation*/, MPI_Comm comm,
                   MPI_Request* request) {
  *request = meet(comm, Request::sum, 0, to, to, static_cast<std::size_t>(count) * type);
  return MPI_SUCCESS;
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* /*status*/) {
  sleep_at_random();
  if (*request != nullptr) make_progress((*request)->member->process);
  *done = complete(request) ? 1 : 0;
  return MPI_SUCCESS;
}

int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* /*statuses*/) {
  sleep_at_random();
  *done = 1;
  for (int i = 0; i < count; ++i) {
    if (requests[i] == nullptr) continue;
    make_progress(requests[i]->member->process);
    if (!is_over(*requests[i])) *done = 0;
  }
  for (int i = 0; *done != 0 && i < count; ++i) complete(&requests[i]);
  return MPI_SUCCESS;
}

int MPI_Request_get_status(MPI_Request request, int* done, MPI_Status* /*status*/) {
  if (request != nullptr) make_progress(request->member->process);
  *done = request == nullptr || is_over(*request) ? 1 : 0;
  return MPI_SUCCESS;
}

int MPI_Bcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  wait(meet(comm, Request::broadcast, root, bytes, bytes, static_cast<std::size_t>(count) * type));
  return MPI_SUCCESS;
}

int MPI_Allgather(const void* from, int count, MPI_Datatype type, void* to, int /*to_count*/, MPI_Datatype /*to_type*/,
                  MPI_Comm comm) {
  wait(meet(comm, Request::gather, 0, from, to, static_cast<std::size_t>(count) * type));
  return MPI_SUCCESS;
}
