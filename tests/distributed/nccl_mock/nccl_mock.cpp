// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_mock.cpp: a library with the calls of NCCL that KoZeRO makes, for tests: ranks of one node, with or without a
// GPU, and several on one GPU. KOZERO_NCCL_LIBRARY is its path. Work is put on the given stream, which alone orders it.
// The mock checks NCCL's rules. A misuse that one rank can see returns an error. If ranks call different functions,
// they find an asynchronous error; NCCL would hang or mix up their data. Sums are in rank order, so that mpi gives the
// same bits.
//   KOZERO_NCCL_MOCK_VERSION  the version that it reports (default 22809)
//   KOZERO_NCCL_MOCK_START    "absent": this rank does not join the communicator's start; "fails": the start fails
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "src/distributed/nccl/nccl_connection.hpp"

#include "device_memory.hpp"
#include "member.hpp"

using namespace kozero::distributed::nccl;
using kozero::test::Call;
using kozero::test::error;
using kozero::test::Meeting;
using kozero::test::Member;
using kozero::test::Part;

namespace {

std::mutex mutex;
std::set<Member*> members;  // not destroyed

thread_local int group_depth = 0;
thread_local std::vector<Call> group;
thread_local Member* last_member = nullptr;  // the member of this thread's last call
thread_local Stream last_stream = nullptr;

Member* member_of(Comm comm) {
  const std::lock_guard lock(mutex);
  const auto found = members.find(static_cast<Member*>(comm));
  return found == members.end() ? nullptr : *found;
}

Result no_member() { return error(kInvalidArgument, "this is no communicator, or it was destroyed"); }

Result submit(Comm comm, Stream stream, const std::string& words, const std::vector<Part>& parts) {
  Member* member = member_of(comm);
  if (member == nullptr) return no_member();
  if (stream == nullptr) return error(kInvalidArgument, words + " on no stream");
  if (member->in_progress()) return error(kInvalidArgument, words + " while the call before is in progress");
  member->connect(words.substr(0, words.find(' ')));
  last_member = member;
  last_stream = stream;
  Call call{member, stream, parts, words};
  if (group_depth == 0) return member->ask(std::move(call));
  group.push_back(std::move(call));
  return kSuccess;
}

/// The calls of a group as one call.
Result launch_group() {
  std::vector<Call> calls = std::move(group);
  group.clear();
  // All ranks meet, also those without a message.
  if (calls.empty()) return last_member->ask(Call{last_member, last_stream, {}, kozero::test::kMessages});
  const auto is_message = [](const Call& call) { return call.parts.front().is_message(); };
  const auto messages = static_cast<std::size_t>(std::ranges::count_if(calls, is_message));
  if (messages != 0 && messages != calls.size()) return error(kInvalidUsage, "the mock has no group of both kinds");
  Call all{calls.front().member, calls.front().stream, {}, "a group:"};
  for (const Call& call : calls) {
    if (call.member != all.member || call.stream != all.stream) {
      return error(kInvalidUsage, "a group of several communicators or streams");
    }
    all.parts.insert(all.parts.end(), call.parts.begin(), call.parts.end());
    all.words += " " + call.words + ";";
  }
  if (messages != 0) all.words = kozero::test::kMessages;
  return all.member->ask(std::move(all));
}

std::string words_of(const char* what, std::size_t count, DataType type, int root = -1) {
  const std::string to_whom = root < 0 ? "" : ", root " + std::to_string(root);
  return what + (" of " + std::to_string(count)) + (type == kFloat32 ? " float32" : " uint8") + to_whom;
}

std::size_t size_of(DataType type) { return type == kFloat32 ? sizeof(float) : 1; }

/// The problem, or "".
std::string wrong(Comm comm, DataType type, int root, bool adds, ReduceOp op = kSum) {
  const Member* member = member_of(comm);
  if (type != kFloat32 && type != kUint8) return "the mock knows float32 and uint8";
  if (adds && (type != kFloat32 || op != kSum)) return "the mock adds float32, and nothing else";
  if (member != nullptr && root >= member->rank_of().size) return "a root that is no rank";
  return "";
}

Result remove(Member* member) {
  {
    const std::lock_guard lock(mutex);
    members.erase(member);
  }
  delete member;
  return kSuccess;
}

}  // namespace

extern "C" {

extern const int kozero_nccl_mock;
const int kozero_nccl_mock = 1;

Result ncclGetVersion(int* code) {
  const char* claimed = std::getenv("KOZERO_NCCL_MOCK_VERSION");
  *code = claimed == nullptr ? 22809 : std::atoi(claimed);
  return kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made = 0;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string name =
      "/kozero_nccl_mock_" + std::to_string(getpid()) + "_" + std::to_string(made++) + "_" + std::to_string(now);
  if (!Meeting::create(name)) return error(kSystemError, "no shared memory for " + name);
  *id = UniqueId{};
  std::memcpy(id->internal, name.data(), name.size());
  return kSuccess;
}

Result ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  const bool blocks = config->size < sizeof(Config) || config->magic != Config{}.magic || config->blocking != 0;
  if (blocks) return error(kInvalidArgument, "the mock has no communicators that block");
  if (size < 1 || size > Meeting::kMostRanks || rank < 0 || rank >= size) {
    return error(kInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size));
  }
  const char* told = std::getenv("KOZERO_NCCL_MOCK_START");
  const std::string start = told == nullptr ? "" : told;
  if (start == "absent") return error(kSystemError, "this rank does not come");
  auto member = std::make_unique<Member>(id.internal, kozero::test::RankOf{rank, size}, start == "fails");
  if (!member->ok()) return error(kSystemError, std::string("no meeting ") + id.internal);
  const std::lock_guard lock(mutex);
  *comm = *members.insert(member.release()).first;
  return kInProgress;
}

Result ncclCommFinalize(Comm comm) {
  Member* member = member_of(comm);
  if (member == nullptr) return no_member();
  return member->ask({});
}

Result ncclCommDestroy(Comm comm) {
  Member* member = member_of(comm);
  if (member == nullptr) return no_member();
  if (member->in_progress()) return error(kInvalidUsage, "ncclCommDestroy while a call is in progress");
  return remove(member);
}

Result ncclCommAbort(Comm comm) {
  Member* member = member_of(comm);
  if (member == nullptr) return no_member();
  member->give_up();
  return remove(member);
}

Result ncclCommGetAsyncError(Comm comm, Result* result) {
  Member* member = member_of(comm);
  if (member == nullptr) return no_member();
  *result = member->look();
  return kSuccess;
}

const char* ncclGetErrorString(Result result) {
  return result == kSuccess        ? "no error"
         : result == kInvalidUsage ? "invalid usage"
                                   : "invalid argument or system error";
}

const char* ncclGetLastError(Comm /*comm*/) {
  thread_local std::string copy;
  copy = kozero::test::last_error();
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
  for (int r = 0; member != nullptr && r < member->rank_of().size; ++r) {
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
  for (int r = 0; member != nullptr && r < member->rank_of().size; ++r) {
    parts.push_back({Part::Kind::broadcast, static_cast<const char*>(send),
                     static_cast<char*>(receive) + static_cast<std::size_t>(r) * bytes, bytes, r});
  }
  return submit(comm, stream, words_of("ncclAllGather", each, type), parts);
}

Result ncclSend(const void* from, std::size_t count, DataType type, int to, Comm comm, Stream stream) {
  const std::string problem = wrong(comm, type, to, false);
  if (!problem.empty()) return error(kInvalidArgument, "ncclSend: " + problem);
  if (group_depth == 0) return error(kInvalidUsage, "the mock has messages in groups alone");
  return submit(comm, stream, words_of("ncclSend", count, type, to),
                {{Part::Kind::send, static_cast<const char*>(from), nullptr, count * size_of(type), to}});
}

Result ncclRecv(void* to, std::size_t count, DataType type, int from, Comm comm, Stream stream) {
  const std::string problem = wrong(comm, type, from, false);
  if (!problem.empty()) return error(kInvalidArgument, "ncclRecv: " + problem);
  if (group_depth == 0) return error(kInvalidUsage, "the mock has messages in groups alone");
  return submit(comm, stream, words_of("ncclRecv", count, type, from),
                {{Part::Kind::receive, nullptr, static_cast<char*>(to), count * size_of(type), from}});
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
