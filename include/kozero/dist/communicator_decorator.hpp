// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator_decorator.hpp: a communicator that hands everything to the one it owns; decorators override some of it.
#pragma once
#include <utility>

#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

class CommunicatorDecorator : public Communicator {
 public:
  explicit CommunicatorDecorator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string name() const override { return inner_->name(); }

  [[nodiscard]] std::string description() const override { return inner_->description(); }

  Pending start_reduce_scatter(const float* full, float* slice, const Partition& partition) override {
    return inner_->start_reduce_scatter(full, slice, partition);
  }
  Pending start_all_gather(const void* slice, void* full, const Partition& partition,
                           std::size_t element_size) override {
    return inner_->start_all_gather(slice, full, partition, element_size);
  }
  void finish(Pending pending) override { inner_->finish(pending); }
  void reclaim(Pending pending) override { inner_->reclaim(pending); }
  void* share(const std::string& label, std::int64_t bytes) override { return inner_->share(label, bytes); }

  void barrier() override { inner_->barrier(); }
  std::vector<double> gather_control(const std::vector<double>& values) override {
    return inner_->gather_control(values);
  }
  std::string broadcast_control(const std::string& bytes) override { return inner_->broadcast_control(bytes); }

 protected:
  [[nodiscard]] Communicator& inner() const { return *inner_; }

 private:
  std::unique_ptr<Communicator> inner_;
};

}  // namespace kozero::dist
