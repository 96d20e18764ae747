// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// staged_communicator.hpp: device memory through a communicator that only reads host memory.
//   device -> one pinned host buffer -> the inner collective, in place -> device, piece by piece of all slices
// The sums are the inner communicator's, so its bits. All of it is done in start: there is one buffer. The buffer is
// booked under Memory::staging.
#pragma once
#include <Kokkos_Core.hpp>

#include <kozero/core/ledger.hpp>
#include <kozero/dist/communicator_decorator.hpp>

namespace kozero::dist {

class StagedCommunicator final : public CommunicatorDecorator {
 public:
  /// `staging_bytes`: of the buffer; it holds at least one 64-element piece of 8 bytes for each rank.
  StagedCommunicator(std::unique_ptr<Communicator> inner, MemoryLedger& ledger, std::int64_t staging_bytes);

  Pending start_reduce_scatter(const float* full, float* slice, const Partition& partition) override;
  Pending start_all_gather(const void* slice, void* full, const Partition& partition,
                           std::size_t element_size) override;
  void finish(Pending /*pending*/) override {}
  void reclaim(Pending /*pending*/) override {}
  /// Host memory is no place for a device's arrays.
  void* share(const std::string& /*label*/, std::int64_t /*bytes*/) override { return nullptr; }

  /// What a rank of `size` books.
  static std::int64_t buffer_bytes(int size, std::int64_t staging_bytes);

 private:
  [[nodiscard]] std::int64_t piece_extent(std::size_t element_size) const;

  Kokkos::View<char*, Kokkos::SharedHostPinnedSpace> buffer_;
};

}  // namespace kozero::dist
