// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// make_optimizer.cpp: the table of optimizers. A further one is a file beside adamw.cpp and a row here.
#include <array>

#include <kozero/core/error.hpp>
#include <kozero/optim/optimizer.hpp>

namespace kozero::optim {

template <class Scalar>
using Maker = std::unique_ptr<Optimizer<Scalar>>(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);

template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_adamw(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);
template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_sgd(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);

namespace {

template <class Scalar>
struct Row {
  const char* name;
  Maker<Scalar>* make;
};

template <class Scalar>
constexpr std::array kRows = {Row<Scalar>{"adamw", make_adamw<Scalar>}, Row<Scalar>{"sgd", make_sgd<Scalar>}};

}  // namespace

template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_optimizer(const Config& config, std::vector<Segment> segments,
                                                  MemoryLedger& ledger, MemorySource* memory) {
  std::string names;
  for (const auto& row : kRows<Scalar>) {
    if (config.kind == row.name) return row.make(config, std::move(segments), ledger, memory);
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Error(Failure::deck, "optim.kind = \"" + config.kind + "\": accepted are " + names);
}

#define KOZERO_INSTANTIATE(T)                                                                                  \
  template std::unique_ptr<Optimizer<T>> make_optimizer<T>(const Config&, std::vector<Segment>, MemoryLedger&, \
                                                           MemorySource*);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::optim
