// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shm_communicator.cpp: windows of shared memory and the phases they pass through.
#include <algorithm>
#include <cstring>
#include <new>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/dist/phase_counter.hpp>
#include <kozero/dist/shm_communicator.hpp>

#include "group_communicator.hpp"
#include "host_threads.hpp"
#include "mpi_check.hpp"
#include "pieces.hpp"

namespace kozero::dist {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kFloat = sizeof(float);

std::int64_t piece_of(int size, const CommunicatorOptions& options) {
  return piece_extent(options.chunk_bytes, size - 1, kFloat);
}

// Room for a piece of every other rank, in whole pages.
std::int64_t buffer_bytes(int size, const CommunicatorOptions& options) {
  const std::int64_t bytes = std::max(options.chunk_bytes, (size - 1) * piece_of(size, options) * kFloat);
  return (bytes + kPage - 1) / kPage * kPage;
}

std::int64_t window_bytes(int size, const CommunicatorOptions& options) {
  return kPage + 2 * buffer_bytes(size, options);
}

std::string in_mib(std::int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

class ShmCommunicator final : public GroupCommunicator {
 public:
  ShmCommunicator(MPI_Comm parent, const CommunicatorOptions& options)
      : GroupCommunicator(parent, options.timeout_s),
        buffer_bytes_(buffer_bytes(size(), options)),
        piece_(piece_of(size(), options)),
        windows_(static_cast<std::size_t>(size())),
        sources_(static_cast<std::size_t>(size())) {
    allocate(window_bytes(size(), options));
  }

  ~ShmCommunicator() override {
    if (abandoned()) return;
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }

  [[nodiscard]] std::string name() const override { return "shm"; }

  void reduce_scatter(const float* full, float* slice, const Partition& partition) override {
    require(partition.num_ranks() == size(), "shm reduce_scatter: a partition for another number of ranks");
    Device().fence("kozero::dist::shm::reduce_scatter");
    const Pieces pieces(partition, piece_);
    for (std::int64_t k = 0; k < pieces.count(); ++k) {
      for (int r = 0; r < size(); ++r) {
        if (r != rank()) copy_bytes(addend(rank(), r), full + pieces.begin(r, k), pieces.size(r, k) * kFloat);
      }
      publish();
      for (int r = 0; r < size(); ++r) {
        if (r != rank()) await_published(r, "reduce_scatter");
        sources_[static_cast<std::size_t>(r)] = r == rank() ? full + pieces.begin(r, k) : addend(r, rank());
      }
      sum_in_order(sources_.data(), size(), pieces.size(rank(), k), slice + k * piece_);
      ++phase_;
    }
  }

  void all_gather(const void* slice, void* full, const Partition& partition, std::size_t element_size) override {
    require(partition.num_ranks() == size(), "shm all_gather: a partition for another number of ranks");
    Device().fence("kozero::dist::shm::all_gather");
    const auto element = static_cast<std::int64_t>(element_size);
    const Pieces pieces(partition, piece_extent(buffer_bytes_, 1, element));
    const auto* own = static_cast<const char*>(slice);
    auto* all = static_cast<char*>(full);
    for (std::int64_t k = 0; k < pieces.count(); ++k) {
      copy_bytes(buffer(rank()), own + k * pieces.extent() * element, pieces.size(rank(), k) * element);
      publish();
      copy_bytes(all + pieces.begin(rank(), k) * element, own + k * pieces.extent() * element,
                 pieces.size(rank(), k) * element);
      for (int step = 1; step < size(); ++step) {
        const int r = (rank() + step) % size();
        await_published(r, "all_gather");
        copy_bytes(all + pieces.begin(r, k) * element, buffer(r), pieces.size(r, k) * element);
      }
      ++phase_;
    }
  }

 private:
  void allocate(std::int64_t bytes) {
    void* own = nullptr;
    check_mpi(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, mpi(), static_cast<void*>(&own), &window_),
              "MPI_Win_allocate_shared");
    check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
    for (int r = 0; r < size(); ++r) {
      MPI_Aint extent = 0;
      int unit = 0;
      void* base = nullptr;
      check_mpi(MPI_Win_shared_query(window_, r, &extent, &unit, static_cast<void*>(&base)), "MPI_Win_shared_query");
      windows_[static_cast<std::size_t>(r)] = static_cast<char*>(base);
    }
    std::memset(own, 0, static_cast<std::size_t>(bytes));
    new (own) PhaseCounter;
    barrier();
  }

  // At the head of the rank's window.
  [[nodiscard]] PhaseCounter& published(int r) const {
    return *std::launder(reinterpret_cast<PhaseCounter*>(windows_[static_cast<std::size_t>(r)]));
  }

  [[nodiscard]] char* buffer(int r) const {
    return windows_[static_cast<std::size_t>(r)] + kPage + static_cast<std::int64_t>(phase_ % 2) * buffer_bytes_;
  }

  // What `from` adds to the slice of `to`, in the window of `from`.
  [[nodiscard]] float* addend(int from, int to) const {
    return reinterpret_cast<float*>(buffer(from)) + (to - (to > from)) * piece_;
  }

  void publish() { published(rank()).publish(phase_ + 1); }

  void await_published(int r, const char* collective) {
    if (!published(r).await(phase_ + 1, timeout())) lose(collective, "rank " + std::to_string(r));
  }

  std::int64_t buffer_bytes_;
  std::int64_t piece_;
  std::vector<char*> windows_;
  std::vector<const float*> sources_;
  std::uint64_t phase_ = 0;
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace

std::string shm_obstacle(const void* mpi_comm, const CommunicatorOptions& options) {
  const MPI_Comm comm = *static_cast<const MPI_Comm*>(mpi_comm);
  MPI_Comm node = MPI_COMM_NULL;
  int on_node = 0;
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  check_mpi(MPI_Comm_size(node, &on_node), "MPI_Comm_size");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  if (on_node != size) return "the " + std::to_string(size) + " ranks do not share one node";
  std::int64_t free_bytes = options.shm_free_bytes();
  check_mpi(MPI_Bcast(&free_bytes, 1, MPI_INT64_T, 0, comm), "MPI_Bcast");
  const std::int64_t needed = size * window_bytes(size, options);
  if (free_bytes >= needed) return {};
  return "shared memory needs " + in_mib(needed) + " and /dev/shm has " + in_mib(free_bytes) + " left";
}

void book_shm_window(int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
  ledger.book(Memory::communication, "shm window", window_bytes(size, options));
}

std::unique_ptr<Communicator> make_shm_communicator(const void* mpi_comm, MemoryLedger& ledger,
                                                    const CommunicatorOptions& options) {
  auto comm = std::make_unique<ShmCommunicator>(*static_cast<const MPI_Comm*>(mpi_comm), options);
  book_shm_window(comm->size(), ledger, options);
  return comm;
}

}  // namespace kozero::dist
