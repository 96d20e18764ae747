// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// train_example.cpp: trains the model of a deck by KoZeRO's libraries, without its program.
//   mpiexec -n 2 ./train_example inputs/quickstart.toml run.steps=50
#include <cstdio>
#include <exception>

#include <kozero/data/data_set.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/evaluation.hpp>
#include <kozero/train/runtime.hpp>
#include <kozero/train/settings.hpp>

namespace {

void train(const kozero::distributed::Environment& environment, const kozero::io::Deck& deck) {
  using namespace kozero;
  const bool is_first = environment.rank() == 0;
  // Kokkos, with this rank's threads; then the memory of the run and the ranks that share it.
  const train::Runtime runtime(deck.run.threads, environment);
  MemoryLedger ledger;
  const auto comm =
      distributed::make_communicator(deck.comm.backend, environment.world(), ledger, train::communicator_options(deck));

  // The deck's settings for these ranks, and its data.
  const auto seq = train::model_config(deck, data::vocab_of(deck)).seq;
  const data::DataSet data = data::open_data(deck, seq, *comm);
  const train::Settings settings = train::settings_of(deck, environment.size(), data.vocab, data.train->num_samples());

  // Model, weights, gradients and optimizer of this rank, under the deck's ZeRO stage.
  const auto engine = train::make_engine(settings, *comm, ledger);
  engine->initialize(settings.seed);
  const data::Sampler sampler(settings.seed, data.train->num_samples(), settings.batch.global_batch);
  engine->train_on(sampler, *data.train, settings.step);

  io::CheckpointRecord record = train::record_of(deck, settings, data, deck.run.dir);
  record.exactness = train::exactness_of(settings, *comm);
  for (std::int64_t step = 1; step <= settings.steps; ++step) {
    const train::StepResult result = engine->step(step);
    record.step = step;
    record.tokens += result.tokens;
    if (is_first)
      std::printf("step %lld  loss %.4f  norm %.3f\n", static_cast<long long>(step), result.loss, result.grad_norm);
  }
  if (data.validation != nullptr) {
    const double loss = train::evaluate(*engine, *data.validation, 0).loss;
    if (is_first) std::printf("validation %.4f\n", loss);
  }
  train::save_checkpoint(deck.run.dir, *engine, record);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: train_example DECK [section.key=value ...], such as train_example inputs/quickstart.toml\n");
    return 2;
  }
  const kozero::distributed::Environment environment(&argc, &argv);
  try {
    train(environment, kozero::io::read_deck(argv[1], {argv + 2, argv + argc}));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", environment.rank(), error.what());
    kozero::distributed::Environment::abort(1);
  }
}
