// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_double.cpp: a library with the calls of NCCL that KoZeRO makes, for tests: ranks of one node, with or without a GPU, and
// several on one GPU. It is opened where KOZERO_NCCL_LIBRARY names it. Work is put on the given stream and ordered by it alone.
// It holds callers to NCCL's rules. A misuse that one rank can see returns an error; ranks that call different things find an
// asynchronous error, where NCCL would hang or mix their data up. Sums are in rank order, so that mpi gives the same bits.
// Communicators are non-blocking: a call is in progress until it was looked at kLooks times. Only then is its work put on the
// stream, and until then no other call is taken.
//   KOZERO_NCCL_DOUBLE_VERSION  the version it claims (22809 unless set)
//   KOZERO_NCCL_DOUBLE_START    "absent": a rank that does not come to the communicator's start; "fails": an error there
//   kozero_nccl_double_memory   bytes of a GPU that NCCL would hold: of a start, and of the first call of each name
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <kozero/dist/nccl_calls.hpp>

#include "collective.hpp"
#include "device_memory.hpp"

using namespace kozero::dist::nccl;
using kozero::test::Meeting;
using kozero::test::Part;

extern "C" {
extern const int kozero_nccl_double;
const int kozero_nccl_double = 1;
extern std::atomic<std::int64_t> kozero_nccl_double_memory;
std::atomic<std::int64_t> kozero_nccl_double_memory = 0;
}

namespace {

struct Member;

struct Call {
  Member* member;
  Stream stream;
  std::vector<Part> parts;
  std::string words;
};

constexpr int kLooks = 3;  // at a call, before it is over

struct Member {
  kozero::test::Place place;
  Meeting meeting;
  bool fails = false;
  std::atomic<bool> given_up = false;
  std::atomic<int> under_way = 0;
  std::atomic<Result> error = kSuccess;
  int looks_left = kLooks;  // from the start on
  std::optional<Call> asked = {};
  std::set<std::string> names = {};  // of calls there were
  std::int64_t memory = 0;
};

constexpr std::int64_t kStartMemory = 3 << 20;
constexpr std::int64_t kCallMemory = 1 << 20;

std::mutex mutex;
std::set<Member*> members;  // not destroyed
std::string last_error;

thread_local int group_depth = 0;
thread_local std::vector<Call> group;

Result error(Result result, const std::string& text) {
  const std::lock_guard lock(mutex);
  last_error = text;
  return result;
}

Member* member_of(Comm comm) {
  const std::lock_guard lock(mutex);
  const auto found = members.find(static_cast<Member*>(comm));
  return found == members.end() ? nullptr : *found;
}

Result no_member() { return error(kInvalidArgument, "this is no communicator, or it was destroyed"); }

void run(void* pointer) {
  const std::unique_ptr<Call> call(static_cast<Call*>(pointer));
  Member& member = *call->member;
  if (!member.given_up && member.error == kSuccess) {
    const std::string different =
        kozero::test::carry_out(member.meeting, member.place, call->parts, call->words, member.given_up);
    if (!different.empty()) member.error = error(kInvalidUsage, different);
  }
  --member.under_way;
}

Result launch(Call call) {
  Stream stream = call.stream;
  ++call.member->under_way;
  kozero::test::put_on(stream, run, new Call(std::move(call)));
  return kSuccess;
}

/// Goes on at the next looks.
Result ask(Call call) {
  Member& member = *call.member;
  member.asked = std::move(call);
  member.looks_left = kLooks;
  return kInProgress;
}

bool in_progress(Member& member) {
  if (member.looks_left > 1) --member.looks_left;
  if (member.looks_left > 1 || !member.meeting.all_came()) return true;
  member.looks_left = 0;
  if (member.fails) member.error = error(kSystemError, "the start fails, as it was told to");
  if (member.asked) launch(std::move(*member.asked));
  member.asked.reset();
  return false;
}

void take(Member& member, std::int64_t bytes) {
  member.memory += bytes;
  kozero_nccl_double_memory += bytes;
}

Result submit(Comm comm, Stream stream, const std::string& words, const std::vector<Part>& parts) {
  Member* member = member_of(comm);
  if (member == nullptr) return no_member();
  if (stream == nullptr) return error(kInvalidArgument, words + " on no stream");
  if (member->looks_left > 0) return error(kInvalidArgument, words + " while the call before is in progress");
  if (member->names.insert(words.substr(0, words.find(' '))).second) take(*member, kCallMemory);
  Call call{member, stream, parts, words};
  if (group_depth == 0) return ask(std::move(call));
  group.push_back(std::move(call));
  return kSuccess;
}

/// All of a group as one call.
Result launch_group() {
  std::vector<Call> calls = std::move(group);
  group.clear();
  if (calls.empty()) return kSuccess;
  Call all{calls.front().member, calls.front().stream, {}, "a group:"};
  for (const Call& call : calls) {
    if (call.member != all.member || call.stream != all.stream) {
      return error(kInvalidUsage, "a group of several communicators or streams");
    }
    all.parts.insert(all.parts.end(), call.parts.begin(), call.parts.end());
    all.words += " " + call.words + ";";
  }
  return ask(std::move(all));
}

std::string words_of(const char* what, std::size_t count, DataType type, int root = -1) {
  const std::string to_whom = root < 0 ? "" : ", root " + std::to_string(root);
  return what + (" of " + std::to_string(count)) + (type == kFloat32 ? " float32" : " uint8") + to_whom;
}

std::size_t size_of(DataType type) { return type == kFloat32 ? sizeof(float) : 1; }

/// "" or what is wrong.
std::string wrong(Comm comm, DataType type, int root, bool adds, ReduceOp op = kSum) {
  const Member* member = member_of(comm);
  if (type != kFloat32 && type != kUint8) return "the double knows float32 and uint8";
  if (adds && (type != kFloat32 || op != kSum)) return "the double adds float32, and nothing else";
  if (member != nullptr && root >= member->place.size) return "a root that is no rank";
  return "";
}

Result leave(Comm comm, bool gives_up) {
  Member* member = member_of(comm);
  if (member == nullptr) return no_member();
  if (gives_up) member->given_up = true;
  while (member->under_way > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  kozero_nccl_double_memory -= member->memory;
  const std::lock_guard lock(mutex);
  members.erase(member);
  delete member;
  return kSuccess;
}

}  // namespace

extern "C" {

Result ncclGetVersion(int* code) {
  const char* claimed = std::getenv("KOZERO_NCCL_DOUBLE_VERSION");
  *code = claimed == nullptr ? 22809 : std::atoi(claimed);
  return kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made = 0;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string name =
      "/kozero_nccl_double_" + std::to_string(getpid()) + "_" + std::to_string(made++) + "_" + std::to_string(now);
  if (!Meeting::create(name)) return error(kSystemError, "no shared memory for " + name);
  *id = UniqueId{};
  std::memcpy(id->internal, name.data(), name.size());
  return kSuccess;
}

Result ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  const bool blocks = config->size < sizeof(Config) || config->magic != Config{}.magic || config->blocking != 0;
  if (blocks) return error(kInvalidArgument, "the double has no communicators that block");
  if (size < 1 || size > Meeting::kMostRanks || rank < 0 || rank >= size) {
    return error(kInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size));
  }
  const char* told = std::getenv("KOZERO_NCCL_DOUBLE_START");
  const std::string start = told == nullptr ? "" : told;
  if (start == "absent") return error(kSystemError, "this rank does not come");
  auto member = std::unique_ptr<Member>(new Member{{rank, size}, {id.internal, rank, size}, start == "fails"});
  if (!member->meeting.ok()) return error(kSystemError, std::string("no meeting ") + id.internal);
  take(*member, kStartMemory);
  const std::lock_guard lock(mutex);
  *comm = *members.insert(member.release()).first;
  return kInProgress;
}

Result ncclCommFinalize(Comm comm) {
  Member* member = member_of(comm);
  if (member == nullptr) return no_member();
  member->looks_left = kLooks;
  return kInProgress;
}

Result ncclCommDestroy(Comm comm) { return leave(comm, false); }
Result ncclCommAbort(Comm comm) { return leave(comm, true); }

Result ncclCommGetAsyncError(Comm comm, Result* result) {
  Member* member = member_of(comm);
  if (member == nullptr) return no_member();
  const bool goes_on = in_progress(*member);
  *result = member->error != kSuccess ? member->error.load() : goes_on ? kInProgress : kSuccess;
  return kSuccess;
}

const char* ncclGetErrorString(Result result) {
  return result == kSuccess        ? "no error"
         : result == kInvalidUsage ? "invalid usage"
                                   : "invalid argument or system error";
}

const char* ncclGetLastError(Comm /*comm*/) {
  thread_local std::string copy;
  const std::lock_guard lock(mutex);
  copy = last_error;
  return copy.c_str();
}

Result ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}

Result ncclGroupEnd() {
  if (group_depth == 0) return error(kInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return --group_depth > 0 ? kSuccess : launch_group();
}

Result ncclReduce(const void* send, void* receive, std::size_t count, DataType type, ReduceOp op, int root, Comm comm,
                  Stream stream) {
  const std::string problem = wrong(comm, type, root, true, op);
  if (!problem.empty()) return error(kInvalidArgument, "ncclReduce: " + problem);
  return submit(
      comm, stream, words_of("ncclReduce", count, type, root),
      {{Part::Kind::reduce, static_cast<const char*>(send), static_cast<char*>(receive), count * sizeof(float), root}});
}

Result ncclBroadcast(const void* send, void* receive, std::size_t count, DataType type, int root, Comm comm,
                     Stream stream) {
  const std::string problem = wrong(comm, type, root, false);
  if (!problem.empty()) return error(kInvalidArgument, "ncclBroadcast: " + problem);
  return submit(comm, stream, words_of("ncclBroadcast", count, type, root),
                {{Part::Kind::broadcast, static_cast<const char*>(send), static_cast<char*>(receive),
                  count * size_of(type), root}});
}

Result ncclReduceScatter(const void* send, void* receive, std::size_t each, DataType type, ReduceOp op, Comm comm,
                         Stream stream) {
  const std::string problem = wrong(comm, type, 0, true, op);
  if (!problem.empty()) return error(kInvalidArgument, "ncclReduceScatter: " + problem);
  const Member* member = member_of(comm);
  const std::size_t bytes = each * sizeof(float);
  std::vector<Part> parts;
  for (int r = 0; member != nullptr && r < member->place.size; ++r) {
    parts.push_back({Part::Kind::reduce, static_cast<const char*>(send) + static_cast<std::size_t>(r) * bytes,
                     static_cast<char*>(receive), bytes, r});
  }
  return submit(comm, stream, words_of("ncclReduceScatter", each, type), parts);
}

Result ncclAllGather(const void* send, void* receive, std::size_t each, DataType type, Comm comm, Stream stream) {
  const std::string problem = wrong(comm, type, 0, false);
  if (!problem.empty()) return error(kInvalidArgument, "ncclAllGather: " + problem);
  const Member* member = member_of(comm);
  const std::size_t bytes = each * size_of(type);
  std::vector<Part> parts;
  for (int r = 0; member != nullptr && r < member->place.size; ++r) {
    parts.push_back({Part::Kind::broadcast, static_cast<const char*>(send),
                     static_cast<char*>(receive) + static_cast<std::size_t>(r) * bytes, bytes, r});
  }
  return submit(comm, stream, words_of("ncclAllGather", each, type), parts);
}

Result ncclMemAlloc(void** memory, std::size_t bytes) {
  *memory = kozero::test::allocate(bytes);
  return *memory != nullptr ? kSuccess : error(kSystemError, "out of memory");
}

Result ncclMemFree(void* memory) {
  kozero::test::release(memory);
  return kSuccess;
}

Result ncclCommRegister(Comm comm, void* memory, std::size_t /*bytes*/, void** handle) {
  if (member_of(comm) == nullptr) return no_member();
  *handle = memory;
  return kSuccess;
}

Result ncclCommDeregister(Comm comm, void* /*handle*/) { return member_of(comm) != nullptr ? kSuccess : no_member(); }

}  // extern "C"
