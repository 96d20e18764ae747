// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_floor.cpp: training on the synthetic source comes within 2 % of its entropy.
#include <catch2/catch_test_macros.hpp>

#include <kozero/data/data_set.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/train/evaluation.hpp>
#include <kozero/train/settings.hpp>

#include "groups.hpp"

using namespace kozero;

TEST_CASE("a tiny model reaches the Markov source's entropy within 2 %") {
  const io::Deck deck = io::parse_deck(
      "run.steps = 1000\nmodel.layers = 1\nmodel.dim = 32\nmodel.heads = 2\nmodel.seq = 32\nmodel.vocab = 24\n"
      "data.synthetic = true\ntrain.global_batch = 32\ntrain.micro_batch = 32\noptim.lr = 1e-2\n"
      "optim.schedule = \"cosine\"\noptim.warmup_steps = 10\noptim.weight_decay = 0.0\noptim.betas = [0.9, 0.99]\n",
      "floor.toml");
  tests::on_first_ranks(1, "self", [&](distributed::Communicator& comm) {
    MemoryLedger ledger;
    const data::DataSet data = data::open_data(deck, 32, comm);
    const auto settings = train::settings_of(deck, 1, data.vocab, data.train->num_samples());
    const auto engine = train::make_engine(settings, comm, ledger);
    engine->initialize(settings.seed);
    const data::Sampler sampler(settings.seed, data.train->num_samples(), settings.batch.global_batch);
    engine->train_on(sampler, *data.train, settings.step);
    for (std::int64_t step = 1; step <= settings.steps; ++step) engine->step(step);
    // Many samples of an unlimited source, so that the mean's standard deviation is below 0.3 % of the floor.
    const double loss = train::evaluate(*engine, *data.train, 4096).loss;
    CHECK(loss > *data.loss_floor - 0.02);
    CHECK(loss < 1.02 * *data.loss_floor);
  });
}
