// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checked_communicator.hpp: before each collective the ranks compare what they call: collective, count, element size.
// Where two differ every rank throws Error(internal, seen by all ranks) naming both and what each called; without the
// check one waits in vain or gets another one's bytes. Debug builds put it around every communicator of several ranks.
#pragma once
#include <memory>

#include <kozero/dist/communicator_decorator.hpp>

namespace kozero::dist {

class CheckedCommunicator final : public CommunicatorDecorator {
 public:
  /// `checks`: control traffic of its own between the same ranks.
  CheckedCommunicator(std::unique_ptr<Communicator> inner, std::unique_ptr<Communicator> checks)
      : CommunicatorDecorator(std::move(inner)), checks_(std::move(checks)) {}

  Pending start_reduce_scatter(const float* full, float* slice, const Partition& partition) override;
  Pending start_all_gather(const void* slice, void* full, const Partition& partition,
                           std::size_t element_size) override;
  void* share(const std::string& label, std::int64_t bytes) override;
  void barrier() override;
  std::vector<double> gather_control(const std::vector<double>& values) override;
  std::string broadcast_control(const std::string& bytes) override;

 private:
  enum class Call { reduce_scatter, all_gather, share, barrier, gather_control, broadcast_control };

  void check(Call call, std::int64_t count, std::size_t element_size);
  static std::string words(const double* called);

  std::unique_ptr<Communicator> checks_;
};

}  // namespace kozero::dist
