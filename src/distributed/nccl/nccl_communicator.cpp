// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_communicator.cpp: why ranks cannot use NCCL, and NCCL's collectives on a stream between two events.
#include <mpi.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include "src/distributed/back_ends.hpp"
#include "src/distributed/chunks.hpp"
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/nccl/device_stream.hpp"
#include "src/distributed/nccl/nccl_connection.hpp"
#include "src/distributed/ordered_sum.hpp"

namespace kozero::distributed {

namespace {

/// Why this rank cannot use NCCL. Opens the library if this build can use one.
std::string unavailable_reason_here(nccl::Library& library) {
  const std::string for_gpus = "this program was built for CPUs, and NCCL moves data between GPUs: start kozero-cuda";
  if (kHostIsDevice && std::getenv("KOZERO_NCCL_LIBRARY") == nullptr) return for_gpus;
  library = nccl::open_library();
  return kHostIsDevice && library.unavailable_reason.empty() && !library.is_mock ? for_gpus
                                                                                 : library.unavailable_reason;
}

std::string node_name() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  check_mpi(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  return std::string(name.data(), static_cast<std::size_t>(length));
}

constexpr const char* kWhereToLook =
    "; NCCL_DEBUG=INFO shows how far NCCL came, NCCL_SOCKET_IFNAME chooses its network";

const char* name_of(Collective collective) {
  return collective == Collective::reduce_scatter ? "reduce_scatter" : "all_gather";
}

/// Sets, for its lifetime, environment variables that NCCL reads when a communicator is made.
/// Variables that the user set stay.
class PinnedAlgorithm {
 public:
  /// `several`: several communicators use the GPU at once, in one order on all ranks.
  PinnedAlgorithm(bool pins, bool several) {
    if (several) pin("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
    if (!pins) return;
    pin("NCCL_ALGO", "Ring");
    pin("NCCL_PROTO", "Simple");
  }
  ~PinnedAlgorithm() {
    for (const char* variable : set_) unsetenv(variable);
  }
  PinnedAlgorithm(const PinnedAlgorithm&) = delete;
  PinnedAlgorithm& operator=(const PinnedAlgorithm&) = delete;

  /// ", NCCL_ALGO = Ring, NCCL_PROTO = Simple"
  [[nodiscard]] static std::string in_force() {
    std::string text;
    for (const char* variable : {"NCCL_ALGO", "NCCL_PROTO"}) {
      if (const char* value = std::getenv(variable)) text += std::string(", ") + variable + " = " + value;
    }
    return text;
  }

 private:
  void pin(const char* variable, const char* value) {
    if (std::getenv(variable) != nullptr) return;
    setenv(variable, value, 0);
    set_.push_back(variable);
  }

  std::vector<const char*> set_;
};

class NcclCommunicator final : public GroupCommunicator {
 public:
  /// `received`: the receive buffer of comm.exact; extent 0 without comm.exact.
  NcclCommunicator(const Ranks& ranks, const nccl::Library& library, const CommunicatorOptions& options,
                   const Vector<float>& received)
      : GroupCommunicator(ranks, {.label = "nccl", .timeout_s = options.timeout_s}),
        nccl_(library.calls),
        deterministic_(options.deterministic),
        received_(received),
        connection_(library.calls),
        slots_(options.under_way) {
    nccl::UniqueId id{};
    if (rank() == 0) check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    const std::string bytes = broadcast_control(std::string(id.internal, sizeof(id.internal)));
    std::memcpy(id.internal, bytes.data(), sizeof(id.internal));
    const PinnedAlgorithm pinned(options.deterministic, options.communicators > 1);
    description_ = (library.is_mock ? "nccl (the tests' mock" : "nccl (NCCL " + library.version) +
                   PinnedAlgorithm::in_force() + (is_exact() ? ", sums in rank order)" : ")");
    wait_for_result(connection_.open(rank(), size(), id), "ncclCommInitRankConfig");
    watch_.emplace(nccl_, connection_, job_rank(), options.timeout_s);
  }

  ~NcclCommunicator() override {
    const bool aborted = watch_->failed();
    watch_.reset();
    if (aborted || abandoned()) {
      connection_.abort();  // so that the stream's destructor does not wait for it
      return;
    }
    for (const auto& [memory, handle] : registered_) {
      static_cast<void>(nccl_.comm_deregister(comm(), handle));
      static_cast<void>(nccl_.mem_free(memory));
    }
    connection_.close(timeout());
  }

  [[nodiscard]] std::string name() const override { return "nccl"; }
  [[nodiscard]] std::string description() const override { return description_; }

  void* share(const std::string& /*label*/, std::int64_t bytes) override {
    const bool registers = nccl_.mem_alloc != nullptr && nccl_.comm_register != nullptr;
    if (deterministic_ || !registers || bytes == 0) return nullptr;
    const auto extent = static_cast<std::size_t>(bytes);
    void* memory = nullptr;
    void* handle = nullptr;
    check(nccl_.mem_alloc(&memory, extent), "ncclMemAlloc");
    wait_for_result(nccl_.comm_register(comm(), memory, extent, &handle), "ncclCommRegister");
    registered_.emplace_back(memory, handle);
    return memory;
  }

  /// NCCL's own sums add in an order that NCCL chooses.
  [[nodiscard]] bool adds_in_order() const override { return is_exact(); }

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override {
    if (is_exact()) {
      return start(Collective::reduce_scatter, partition, [&] { add_in_order(full, shard, partition, fold); });
    }
    require(fold.num_ranks(size()) == size() && !fold.onto, "nccl reduce_scatter adds all ranks' arrays alone");
    return start_by_root(Collective::reduce_scatter, partition, [&](int root) {
      const auto count = static_cast<std::size_t>(partition.size(std::max(root, 0)));
      if (root < 0) {
        return nccl_.reduce_scatter(full, shard, count, nccl::kFloat32, nccl::kSum, comm(), stream_.handle());
      }
      return nccl_.reduce(full + partition.begin(root), root == rank() ? shard : nullptr, count, nccl::kFloat32,
                          nccl::kSum, root, comm(), stream_.handle());
    });
  }

  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override {
    return start_by_root(Collective::all_gather, partition, [&](int root) {
      const auto bytes = static_cast<std::size_t>(partition.size(std::max(root, 0))) * element_size;
      if (root < 0) return nccl_.all_gather(shard, full, bytes, nccl::kUint8, comm(), stream_.handle());
      char* part = static_cast<char*>(full) + static_cast<std::size_t>(partition.begin(root)) * element_size;
      return nccl_.broadcast(root == rank() ? shard : part, part, bytes, nccl::kUint8, root, comm(), stream_.handle());
    });
  }

  void wait(Pending pending) override {
    Slot& slot = slots_[pending.ticket % slots_.size()];
    require(slot.open, "nccl: wait for a collective that was not started");
    compute_.wait_for(slot.done, [this] { look(); });
    look();
    slot.open = false;
  }

 private:
  struct Slot {
    StreamEvent given;  // on the compute stream: the collective's input is complete
    StreamEvent done;   // on the communication stream
    bool open = false;
  };

  [[nodiscard]] bool is_exact() const { return received_.extent(0) > 0; }

  /// `call(root)` starts the reduction or broadcast of one root's shard on the stream, call(-1) that of equal shards.
  template <class Call>
  Pending start_by_root(Collective collective, const Partition& partition, const Call& call) {
    return start(collective, partition,
                 [&] { wait_for_result(put(collective, partition, call), name_of(collective)); });
  }

  /// `put_all` puts the collective on the stream, between the two events.
  template <class PutAll>
  Pending start(Collective collective, const Partition& partition, const PutAll& put_all) {
    require(partition.num_ranks() == size(), "nccl: a partition for another number of ranks");
    begin(name_of(collective), partition.extent());
    const std::uint64_t ticket = next_++;
    Slot& slot = slots_[ticket % slots_.size()];
    require(!slot.open,
            "nccl: " + std::to_string(slots_.size()) + " collectives are under way, and another is started");
    slot.open = true;
    compute_.record(slot.given);
    stream_.wait_for(slot.given);
    watch_->announce(name_of(collective));
    put_all();
    stream_.record(slot.done);
    watch_->add(slot.done);
    return {collective, ticket};
  }

  /// For each chunk of the shards: receives the addends as messages, then adds them in one kernel.
  void add_in_order(const float* full, float* shard, const Partition& partition, Fold fold) {
    const std::int64_t extent =
        chunk_extent(static_cast<std::int64_t>(received_.extent(0) * sizeof(float)), size() - 1, sizeof(float));
    const Chunks chunks(partition, extent);
    const int addends = fold.num_ranks(size());
    for (std::int64_t k = 0; k < chunks.count(); ++k) {
      if (size() > 1) wait_for_result(put_messages(full, chunks, k, addends), "reduce_scatter");
      float* const out = shard + k * extent;
      stream_.add({.out = out,
                   .onto = fold.onto ? out : nullptr,
                   .own = full + chunks.begin(rank(), k),
                   .received = received_.data(),
                   .stride = extent,
                   .own_index = rank(),
                   .num_addends = addends,
                   .extent = chunks.size(rank(), k)});
    }
  }

  /// The first `addends` ranks send and all ranks receive, in rank order.
  nccl::Result put_messages(const float* full, const Chunks& chunks, std::int64_t k, int addends) {
    const std::lock_guard lock(connection_.calls());
    if (watch_->failed()) lose(watch_->failure());
    check(nccl_.group_start(), "ncclGroupStart");
    for (int peer = 0; peer < size(); ++peer) {
      const auto count = static_cast<std::size_t>(chunks.size(peer, k));
      if (peer == rank() || rank() >= addends || count == 0) continue;
      check(nccl_.send(full + chunks.begin(peer, k), count, nccl::kFloat32, peer, comm(), stream_.handle()),
            "ncclSend");
    }
    const auto count = static_cast<std::size_t>(chunks.size(rank(), k));
    for (int peer = 0; peer < addends && count > 0; ++peer) {
      if (peer == rank()) continue;
      float* const to = received_.data() + (peer - (peer > rank() ? 1 : 0)) * chunks.extent();
      check(nccl_.receive(to, count, nccl::kFloat32, peer, comm(), stream_.handle()), "ncclRecv");
    }
    return nccl_.group_end();
  }

  template <class Call>
  nccl::Result put(Collective collective, const Partition& partition, const Call& call) {
    const std::lock_guard lock(connection_.calls());
    if (watch_->failed()) lose(watch_->failure());
    if (partition.extent() == 0) return nccl::kSuccess;
    if (partition.is_even()) return call(-1);
    check(nccl_.group_start(), "ncclGroupStart");
    for (int root = 0; root < size(); ++root) {
      if (partition.size(root) > 0) check(call(root), name_of(collective));
    }
    return nccl_.group_end();
  }

  /// Waits until NCCL has completed a call that continues in its own thread. Required before the next call and before
  /// later work is put on the stream.
  void wait_for_result(nccl::Result result, const char* what) {
    result = connection_.wait_for_result(result, timeout(), [this] { return watch_ && watch_->failed(); });
    if (result != nccl::kSuccess) look();
    if (result == nccl::kInProgress) lose(waited_in_vain(job_rank(), timeout(), what, kAnotherRank) + kWhereToLook);
    check(result, what);
  }

  /// Reads NCCL's return code.
  void check(nccl::Result result, const char* what) {
    if (result == nccl::kSuccess) return;
    lose("rank " + std::to_string(job_rank()) + ": NCCL refused " + what + ": " + nccl_.get_error_string(result) +
         " (" + nccl_.get_last_error(comm()) + ")");
  }

  void look() override {
    if (watch_ && watch_->look()) lose(watch_->failure());
  }

  [[nodiscard]] nccl::Comm comm() const { return connection_.comm(); }

  nccl::Calls nccl_;
  bool deterministic_;
  Vector<float> received_;
  std::string description_;
  NcclConnection connection_;
  ComputeStream compute_;
  DeviceStream stream_;
  std::vector<Slot> slots_;                          // one per collective that may be under way
  std::uint64_t next_ = 0;                           // ticket
  std::vector<std::pair<void*, void*>> registered_;  // memory and NCCL's handle for the memory
  std::optional<NcclWatch> watch_;
};

/// Makes one call of each kind that collectives use, with equal and with uneven shards: NCCL connects the ranks and
/// allocates memory on the first call of a kind.
void make_first_calls(Communicator& comm) {
  const std::int64_t equal = kAlignment * comm.size();
  const Kokkos::View<float*, DeviceMemory> full("kozero::distributed::nccl::full", static_cast<std::size_t>(equal));
  const Kokkos::View<float*, DeviceMemory> shard("kozero::distributed::nccl::shard",
                                                 static_cast<std::size_t>(kAlignment));
  for (const std::int64_t extent : {equal, equal - 1}) {
    const Partition partition(extent, comm.size());
    comm.reduce_scatter(full.data(), shard.data(), partition);
    comm.all_gather(shard.data(), full.data(), partition, sizeof(float));
  }
  Device().fence("kozero::distributed::nccl::first_calls");
  comm.barrier();  // throws if one of the calls failed
}

}  // namespace

std::string shared_gpu(const std::vector<RankDevice>& devices) {
  std::map<std::pair<std::string, std::string>, std::size_t> owners;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto& [node, gpu] = devices[rank];
    const auto [owner, is_first] = owners.emplace(std::pair{node, gpu}, rank);
    if (is_first) continue;
    return "ranks " + std::to_string(owner->second) + " and " + std::to_string(rank) + " are on the same GPU (" + gpu +
           " of node " + node + "), which NCCL refuses: start one rank per GPU";
  }
  return "";
}

std::string nccl_unavailable_reason(const Ranks& ranks) {
  constexpr double kPatience = 600.0;
  const auto control = make_control_communicator(ranks, kPatience);
  nccl::Library library;
  const auto unavailable_reasons = gather_text(*control, unavailable_reason_here(library));
  for (std::size_t rank = 0; rank < unavailable_reasons.size(); ++rank) {
    if (!unavailable_reasons[rank].empty())
      return (rank == 0 ? "" : "on rank " + std::to_string(rank) + " ") + unavailable_reasons[rank];
  }
  if (library.is_mock) return "";
  const auto nodes = gather_text(*control, node_name());
  const auto gpus = gather_text(*control, device_name());
  std::vector<RankDevice> devices;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) devices.push_back({nodes[rank], gpus[rank]});
  return shared_gpu(devices);
}

Vector<float> received_addends(int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
  if (!options.exact) return {};
  const std::int64_t chunk = chunk_extent(options.exact_bytes, size - 1, sizeof(float));
  return ledger.take<float>(Memory::communication, "addends received by comm.exact", std::max(size - 1, 1) * chunk);
}

std::unique_ptr<Communicator> make_nccl_communicator(const Ranks& ranks, MemoryLedger& ledger,
                                                     const CommunicatorOptions& options) {
  const Vector<float> received = received_addends(ranks.size(), ledger, options);
  const std::int64_t before = options.free_device_bytes();
  auto comm = std::make_unique<NcclCommunicator>(ranks, nccl::open_library(), options, received);
  make_first_calls(*comm);
  const std::int64_t taken = before - options.free_device_bytes();
  ledger.book(Memory::communication, "NCCL's channels, measured", std::max(taken, std::int64_t{0}));
  return comm;
}

}  // namespace kozero::distributed
