// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// planned_communicator.hpp: rank r of n without peers, for `kozero plan`: every collective throws Error(internal).
#pragma once
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

class PlannedCommunicator final : public Communicator {
 public:
  PlannedCommunicator(int rank, int size) : rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string name() const override { return "planned"; }

  Pending start_reduce_scatter(const float*, float*, const Partition&) override { refuse("reduce_scatter"); }
  Pending start_all_gather(const void*, void*, const Partition&, std::size_t) override { refuse("all_gather"); }
  void barrier() override { refuse("barrier"); }
  std::vector<double> gather_control(const std::vector<double>&) override { refuse("gather_control"); }
  std::string broadcast_control(const std::string&) override { refuse("broadcast_control"); }

 private:
  [[noreturn]] static void refuse(const char* collective) {
    throw Error(Failure::internal, std::string(collective) + " was called while planning, where no rank has peers");
  }

  int rank_;
  int size_;
};

}  // namespace kozero::dist
