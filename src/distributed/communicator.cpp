// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator.cpp: default options, agreement through control traffic, the communicator of one rank, and the one that
// carries control traffic alone.
#include <mpi.h>
#include <sys/statvfs.h>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <utility>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include <kozero/distributed/environment.hpp>
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/liveness/heartbeat.hpp"
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {

std::int64_t free_shared_memory() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0) return 0;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

std::int64_t free_device_memory() { return device_memory().free; }

int simulated_ranks_per_node() {
  const char* text = std::getenv("KOZERO_RANKS_PER_NODE");
  return text == nullptr ? 0 : std::max(std::atoi(text), 0);
}

void print_notice(const std::string& line) { std::cerr << line << std::endl; }

std::vector<std::uint64_t> Communicator::sum_control(std::span<const std::uint64_t> mine) {
  const auto all = from_all_ranks(*this, std::vector<std::uint64_t>(mine.begin(), mine.end()));
  std::vector<std::uint64_t> sums(mine.size());
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
  return sums;
}

bool on_all_ranks(Communicator& comm, bool mine) {
  const std::uint64_t without = mine ? 0 : 1;
  return comm.sum_control({&without, 1}).front() == 0;
}

std::vector<std::string> gather_text(Communicator& comm, const std::string& text) {
  const auto lengths = from_all_ranks(comm, text.size());
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<char> padded(longest);
  std::copy(text.begin(), text.end(), padded.begin());
  const std::vector<char> all = from_all_ranks(comm, padded);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r) texts.emplace_back(all.data() + r * longest, lengths[r]);
  return texts;
}

void agree(Communicator& comm, int status, const std::string& message) {
  if (on_all_ranks(comm, status == 0)) return;
  const auto reports = from_all_ranks(comm, status);
  const auto failed = std::find_if(reports.begin(), reports.end(), [](int each) { return each != 0; });
  const auto lowest = static_cast<std::size_t>(failed - reports.begin());
  const std::string text = gather_text(comm, message)[lowest];
  throw Error(static_cast<Failure>(*failed),
              text.empty() ? "rank " + std::to_string(lowest) + " failed and said nothing" : text,
              Error::Seen::by_all_ranks);
}

namespace {

/// to += from. Not a member, since nvcc rejects device lambdas in private member functions.
void add(const float* from, float* to, std::int64_t extent) {
  Kokkos::parallel_for(
      "kozero::distributed::self::add", Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>(0, extent),
      KOKKOS_LAMBDA(std::int64_t i) { to[i] += from[i]; });
}

class SelfCommunicator final : public Communicator {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string name() const override { return "self"; }
  [[nodiscard]] std::optional<double> waited_s() const override { return 0.0; }

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override {
    require(partition.num_ranks() == 1, "self: a partition for more than one rank");
    fold.onto ? add(full, shard, partition.extent()) : copy(full, shard, partition, sizeof(float));
    return {Collective::reduce_scatter};
  }
  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override {
    copy(shard, full, partition, element_size);
    return {Collective::all_gather};
  }

  void barrier() override {}
  std::vector<std::byte> gather_control(std::span<const std::byte> mine) override { return {mine.begin(), mine.end()}; }
  std::string broadcast_control(const std::string& bytes) override { return bytes; }

 private:
  static void copy(const void* from, void* to, const Partition& partition, std::size_t element_size) {
    require(partition.num_ranks() == 1, "self: a partition for more than one rank");
    if (from == to) return;
    const auto bytes = static_cast<std::size_t>(partition.extent()) * element_size;
    Kokkos::deep_copy(Device(), Vector<char>(static_cast<char*>(to), bytes),
                      Vector<const char>(static_cast<const char*>(from), bytes));
  }
};

class ControlCommunicator final : public GroupCommunicator {
 public:
  using GroupCommunicator::GroupCommunicator;

  [[nodiscard]] std::string name() const override { return "control"; }
  Pending start_reduce_scatter(const float* /*full*/, float* /*shard*/, const Partition& /*partition*/,
                               Fold /*fold*/) override {
    refuse();
  }
  Pending start_all_gather(const void* /*shard*/, void* /*full*/, const Partition& /*partition*/,
                           std::size_t /*element_size*/) override {
    refuse();
  }

 private:
  [[noreturn]] static void refuse() { throw Error(Failure::internal, "a control communicator was given data to move"); }
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() { return std::make_unique<SelfCommunicator>(); }

std::unique_ptr<Communicator> checked(std::unique_ptr<Communicator> comm, const Ranks& ranks, GroupTraits traits) {
  traits.label = "checks";
  return std::make_unique<CheckedCommunicator>(std::move(comm), std::make_unique<ControlCommunicator>(ranks, traits));
}

std::unique_ptr<Communicator> make_control_communicator(const Ranks& ranks, double timeout_s, ControlUse use) {
  if (ranks.size() == 1) return make_self_communicator();
  const bool beside = use.role == Role::saver;
  const GroupTraits traits{.label = beside ? "saver" : "control",
                           .timeout_s = timeout_s,
                           .waiting = beside ? Waiting::sleeps : Waiting::yields,
                           .role = use.role,
                           .is_patient = true,
                           .io_timeout_s = use.io_timeout_s};
  std::unique_ptr<Communicator> comm = std::make_unique<ControlCommunicator>(ranks, traits);
  return use.checks_calls ? checked(std::move(comm), ranks, traits) : std::move(comm);
}

bool is_waiting(Role role) { return whereabouts().is_waiting(role); }

void require_live_ranks(const char* what, double waited_s) {
  const Heartbeat* heartbeat = Heartbeat::running();
  const std::string whom = heartbeat == nullptr ? "" : heartbeat->vain(Role::training);
  if (whom.empty()) return;
  throw Error(Failure::communication, waited_in_vain(known_rank(), waited_s, what, whom) + details(known_rank()));
}

}  // namespace kozero::distributed
