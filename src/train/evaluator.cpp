// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// evaluator.cpp: the memory of an evaluator, and the choice between the interfaces.
#include "src/train/evaluator.hpp"
#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include "kernels/matmul/matmul.hpp"

namespace kozero::train {
namespace {

std::unique_ptr<MemorySource> memory_of(const Offload& offload, int rank) {
  using Kind = MemorySource::Kind;
  if (offload.uses(Kind::disk)) return std::make_unique<DiskMemory>(offload.folder, "rank " + std::to_string(rank));
  if (offload.uses(Kind::host)) return std::make_unique<HostMemory>();
  return nullptr;
}

zero::Config zero_config(const Settings& settings) {
  zero::Config config = settings.zero;
  config.trains = settings.use == Use::training;
  config.units_held = units_held(settings);
  return config;
}

/// For evaluation or generation.
template <class Scalar>
class WeightsAlone final : public EvaluatorOf<Scalar> {
 public:
  WeightsAlone(const Settings& settings, const distributed::Mesh& mesh, MemoryLedger& ledger)
      : EvaluatorOf<Scalar>(settings, mesh, ledger) {
    this->reserve(settings, ledger);
  }
};

}  // namespace

zero::StateMemory state_memory(const Settings& settings, MemorySource* offloaded) {
  const auto where = [&](MemorySource::Kind kind) {
    return kind == MemorySource::Kind::device || settings.use != Use::training ? nullptr : offloaded;
  };
  return {where(settings.offload.optimizer), where(settings.offload.parameters)};
}

template <class Scalar, class Interface>
EvaluatorOf<Scalar, Interface>::EvaluatorOf(const Settings& settings, const distributed::Mesh& mesh,
                                            MemoryLedger& ledger)
    : comm_(mesh.all()),
      model_(model::make_model<Scalar>(settings.model)),
      seq_(settings.step.seq),
      offloaded_(memory_of(settings.offload, comm_.rank())),
      state_(model_->parameters(), mesh, zero_config(settings), ledger, state_memory(settings, offloaded_.get())) {
  if (settings.use == Use::generation) return;
  loader_ = std::make_unique<data::BatchLoader>(settings.batch.micro_batch, settings.step.seq, ledger,
                                                settings.use == Use::training ? settings.batch.micro_steps : 1,
                                                settings.masks_documents);
}

template <class Scalar, class Interface>
void EvaluatorOf<Scalar, Interface>::reserve(const Settings& settings, MemoryLedger& ledger) {
  // Evaluation runs no backward, so all blocks share one block's activations.
  const model::Recompute recompute = settings.use == Use::training ? settings.recompute : model::Recompute{.blocks = 1};
  if (settings.use != Use::generation)
    model_->reserve(ledger, settings.batch.micro_batch, recompute, settings.step.seq);
  ledger.book(Memory::workspace, "matrix products", kernels::product_workspace());
}

std::unique_ptr<Evaluator> make_evaluator(const Settings& settings, const distributed::Mesh& mesh,
                                          MemoryLedger& ledger) {
  if (settings.use == Use::training) return make_engine(settings, mesh, ledger);
  return with_stored_type(settings.precision, [&](auto type) -> std::unique_ptr<Evaluator> {
    return std::make_unique<WeightsAlone<decltype(type)>>(settings, mesh, ledger);
  });
}

#define KOZERO_INSTANTIATE(T)               \
  template class EvaluatorOf<T, Evaluator>; \
  template class EvaluatorOf<T, Engine>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::train
