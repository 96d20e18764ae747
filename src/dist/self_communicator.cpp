// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// self_communicator.cpp: one rank's collectives are copies inside its device memory, put on the stream of the kernels.
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/dist/self_communicator.hpp>

namespace kozero::dist {
namespace {

class SelfCommunicator final : public Communicator {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string name() const override { return "self"; }

  Pending start_reduce_scatter(const float* full, float* slice, const Partition& partition) override {
    copy(full, slice, partition, sizeof(float));
    return {Collective::reduce_scatter};
  }
  Pending start_all_gather(const void* slice, void* full, const Partition& partition,
                           std::size_t element_size) override {
    copy(slice, full, partition, element_size);
    return {Collective::all_gather};
  }

  void barrier() override {}
  std::vector<double> gather_control(const std::vector<double>& values) override { return values; }
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

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() { return std::make_unique<SelfCommunicator>(); }

}  // namespace kozero::dist
