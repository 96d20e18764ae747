// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_nccl_mock.cpp: the mock checks that its callers obey NCCL's rules, on one rank.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/views.hpp>
#include "src/distributed/nccl/device_stream.hpp"
#include "src/distributed/nccl/nccl_connection.hpp"

#include <support/nccl_mock.hpp>

using namespace kozero;
using namespace kozero::distributed;
using namespace kozero::distributed::nccl;

namespace {

/// A communicator of one rank, its stream, and the error text of the last failed call.
class OneRank {
 public:
  OneRank();
  ~OneRank() {
    if (comm != nullptr) calls().comm_destroy(comm);
  }
  /// The status of the last call.
  [[nodiscard]] Result final_result() const;
  [[nodiscard]] const Calls& calls() const { return library_.calls; }
  [[nodiscard]] std::string last_error() const { return calls().get_last_error(comm); }

  Comm comm = nullptr;
  DeviceStream stream;

 private:
  Library library_;
};

OneRank::OneRank() {
  const tests::NcclMock nccl;
  library_ = open_library();
  REQUIRE(library_.unavailable_reason.empty());
  CHECK(library_.is_mock);
  UniqueId id;
  Config config;
  REQUIRE(calls().get_unique_id(&id) == kSuccess);
  REQUIRE(calls().comm_init_rank_config(&comm, 1, id, 0, &config) == kInProgress);
  REQUIRE(final_result() == kSuccess);
}

Result OneRank::final_result() const {
  Result state = kInProgress;
  while (state == kInProgress) REQUIRE(calls().comm_get_async_error(comm, &state) == kSuccess);
  return state;
}

}  // namespace

TEST_CASE("a group moves nothing before its end, and groups nest") {
  OneRank one;
  float from = 3.0F;
  float to = 0.0F;
  StreamEvent done;
  CHECK(one.calls().group_start() == kSuccess);
  CHECK(one.calls().group_start() == kSuccess);
  CHECK(one.calls().reduce(&from, &to, 1, kFloat32, kSum, 0, one.comm, one.stream.handle()) == kSuccess);
  CHECK(one.calls().group_end() == kSuccess);
  one.stream.record(done);
  ComputeStream().wait_for(done, [] {});
  Device().fence();
  CHECK(to == 0.0F);
  CHECK(one.calls().group_end() == kInProgress);
  CHECK(one.final_result() == kSuccess);
  one.stream.record(done);
  ComputeStream().wait_for(done, [] {});
  Device().fence();
  CHECK(to == 3.0F);
}

TEST_CASE("while a call is in progress nothing is on the stream and no other is taken") {
  OneRank one;
  float from = 3.0F;
  float to = 0.0F;
  const auto reduce = [&] {
    return one.calls().reduce(&from, &to, 1, kFloat32, kSum, 0, one.comm, one.stream.handle());
  };
  const auto wait_for_stream = [&] {
    StreamEvent done;
    one.stream.record(done);
    ComputeStream().wait_for(done, [] {});
    Device().fence();
  };
  CHECK(reduce() == kInProgress);
  wait_for_stream();
  CHECK(to == 0.0F);
  CHECK(reduce() == kInvalidArgument);
  CHECK(one.last_error() == "ncclReduce of 1 float32, root 0 while the call before is in progress");
  CHECK(one.final_result() == kSuccess);
  wait_for_stream();
  CHECK(to == 3.0F);
  CHECK(one.calls().comm_finalize(one.comm) == kInProgress);
  CHECK(one.final_result() == kSuccess);
}

TEST_CASE("a communicator that would block is refused") {
  const tests::NcclMock nccl;
  const Calls calls = open_library().calls;
  UniqueId id;
  REQUIRE(calls.get_unique_id(&id) == kSuccess);
  Comm comm = nullptr;
  Config config;
  config.blocking = 1;
  CHECK(calls.comm_init_rank_config(&comm, 1, id, 0, &config) == kInvalidArgument);
  CHECK(std::string(calls.get_last_error(comm)) == "the mock has no communicators that block");
}

TEST_CASE("misused groups, arguments and destroyed communicators are refused with the reason") {
  OneRank one;
  DeviceStream other;
  float x = 0.0F;
  const auto reduce = [&](DataType type, ReduceOp op, int root, Stream stream) {
    return one.calls().reduce(&x, &x, 1, type, op, root, one.comm, stream);
  };
  CHECK(one.calls().group_end() == kInvalidUsage);
  CHECK(one.last_error() == "ncclGroupEnd without ncclGroupStart");
  CHECK(reduce(kUint8, kSum, 0, one.stream.handle()) == kInvalidArgument);
  CHECK(one.last_error() == "ncclReduce: the mock adds float32, and nothing else");
  CHECK(reduce(kFloat32, static_cast<ReduceOp>(1), 0, one.stream.handle()) == kInvalidArgument);
  CHECK(reduce(kFloat32, kSum, 1, one.stream.handle()) == kInvalidArgument);
  CHECK(one.last_error() == "ncclReduce: a root that is no rank");
  CHECK(reduce(kFloat32, kSum, 0, nullptr) == kInvalidArgument);

  CHECK(one.calls().group_start() == kSuccess);
  CHECK(reduce(kFloat32, kSum, 0, one.stream.handle()) == kSuccess);
  CHECK(reduce(kFloat32, kSum, 0, other.handle()) == kSuccess);
  CHECK(one.calls().group_end() == kInvalidUsage);
  CHECK(one.last_error() == "a group of several communicators or streams");

  const Comm gone = one.comm;
  CHECK(one.calls().comm_destroy(one.comm) == kSuccess);
  one.comm = nullptr;
  CHECK(one.calls().all_gather(&x, &x, 1, kUint8, gone, one.stream.handle()) == kInvalidArgument);
  CHECK(one.last_error() == "this is no communicator, or it was destroyed");
  CHECK(one.calls().comm_destroy(gone) == kInvalidArgument);
}
