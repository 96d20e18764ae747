// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_trainer.cpp: the effect of one step on the weights: the schedule's rate, clipping, and no change if a number is
// not finite.
//   SGD without momentum and decay: |w_after - w_before| = lr * min(norm, grad_clip)
#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include <kozero/core/error.hpp>
#include <kozero/train/evaluation.hpp>

#include "groups.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using tests::TinyRun;
using tests::TinyTraining;

namespace {

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(squares);
}

/// Sets one weight of rank 0's first shard, on every rank's copy.
void set_first_weight(TinyTraining& training, const distributed::Communicator& comm, float value) {
  const auto mine = training.engine().master().shard(0);
  if (comm.rank() == 0) Kokkos::deep_copy(Kokkos::subview(mine, 0), value);  // also on a GPU
  training.engine().publish();
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("a step moves the weights by the schedule's rate times the clipped norm") {
  tests::on_first_ranks(1, "self", [](distributed::Communicator& comm) {
    for (const double grad_clip : {0.0, 0.01, 1e6}) {
      MemoryLedger ledger;
      TinyTraining training({.model = tests::tiny_llama(),
                             .steps = 4,
                             .optimizer = "sgd",
                             .weight_decay = 0.0,
                             .momentum = 0.0,
                             .grad_clip = grad_clip,
                             .schedule = {.kind = "linear", .lr = 0.5, .warmup_steps = 2}},
                            comm, ledger);
      const std::vector<double> rates = {0.25, 0.5, 0.5, 0.25};
      for (std::int64_t step = 1; step <= 4; ++step) {
        const auto before = training.my_weights();
        const auto result = training.engine().step(step);
        const double norm = grad_clip > 0.0 ? std::min(grad_clip, result.grad_norm) : result.grad_norm;
        const double rate = rates[static_cast<std::size_t>(step - 1)];
        CHECK(result.lr == rate);
        CHECK(distance(before, training.my_weights()) == Catch::Approx(rate * norm).epsilon(1e-3));
      }
    }
  });
}

TEST_CASE("the loss and its gradient are means over the step's targets that count, on all ranks together") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    MemoryLedger ledger;
    constexpr double kRate = 1e-3;
    // All of 5 samples in each step, so that losses of two steps are of the same targets.
    TinyTraining training({.model = tests::tiny_llama(),
                           .global_batch = 5,
                           .num_samples = 5,
                           .ignores_targets = true,
                           .optimizer = "sgd",
                           .weight_decay = 0.0,
                           .momentum = 0.0,
                           .grad_clip = 0.0,
                           .schedule = {.kind = "constant", .lr = kRate}},
                          comm, ledger);
    const auto before = train::evaluate(training.engine(), training.source(), 0);
    const auto first = training.engine().step(1);
    const auto second = training.engine().step(2);
    CHECK(first.tokens == 5 * 7);
    CHECK(first.targets == 5 * 7 - (0 + 1 + 2 + 3 + 0));
    CHECK(before.targets == first.targets);
    CHECK(first.loss == Catch::Approx(before.loss).epsilon(1e-6));
    CHECK(first.loss == Catch::Approx(std::log(37.0)).epsilon(0.1));
    // To first order, the loss falls by the rate times the squared norm.
    CHECK(first.loss - second.loss == Catch::Approx(kRate * first.grad_norm * first.grad_norm).epsilon(0.02));
  });
}

TEST_CASE("a step that is interrupted between micro-steps leaves no bit behind, in every stage") {
  using zero::Accumulation;
  const auto interrupt = [](const TinyRun& run, distributed::Communicator& comm) {
    MemoryLedger of_whole;
    const auto whole = TinyTraining(run, comm, of_whole).result();
    MemoryLedger ledger;
    TinyTraining training(run, comm, ledger);
    const auto before = training.my_weights();
    // The request takes so long that the step lasts more than 2 s. It is then interrupted.
    const std::chrono::duration<double> slow(2.2 / static_cast<double>(run.global_batch / comm.size() - 1));
    const auto interrupted = training.engine().step(1, [&] {
      std::this_thread::sleep_for(slow);
      return comm.rank() + 1 == comm.size() ? 15 : 0;
    });
    CHECK(interrupted.interrupted_after == 1);
    CHECK(interrupted.request == 15);
    CHECK(training.my_weights() == before);
    CHECK(training.result() == whole);
  };
  for (const int num_ranks : {1, 2, 4}) {
    tests::on_first_ranks(num_ranks, num_ranks == 2 ? "mpi" : "shm", [&](distributed::Communicator& comm) {
      TinyRun run{.model = tests::tiny_gpt2(), .micro_batch = 1, .global_batch = 24, .num_samples = 30};
      for (run.accumulation = Accumulation::local; run.stage <= 1; ++run.stage) interrupt(run, comm);
      run.accumulation = Accumulation::ordered;
      for (run.stage = 0; run.stage <= 3; ++run.stage) {
        run.check_every = run.stage % 2;
        interrupt(run, comm);
      }
    });
  }
}

TEST_CASE("steps shorter than 2 s ask for a reason to stop at their end alone; the first also after a micro-step") {
  tests::on_first_ranks(1, "self", [](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training({.model = tests::tiny_llama(), .micro_batch = 1}, comm, ledger);
    std::vector<int> calls;
    for (std::int64_t step = 1; step <= 3; ++step) {
      calls.push_back(0);
      CHECK(training.engine().step(step, [&] { return ++calls.back(), 0; }).interrupted_after == 0);
    }
    CHECK(calls == std::vector<int>{2, 1, 1});
  });
}

TEST_CASE("an incomplete step is the step of a smaller batch: it divides by its own tokens") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    MemoryLedger ledger, small_ledger;
    TinyTraining training({.model = tests::tiny_gpt2(), .global_batch = 5}, comm, ledger);
    TinyTraining small({.model = tests::tiny_gpt2(), .global_batch = 2}, comm, small_ledger);
    const auto last = training.engine().step(3);  // samples 10 and 11 of 12
    const auto same = small.engine().step(6);
    CHECK(last.tokens == 2 * 7);
    CHECK(last.loss == Catch::Approx(same.loss).epsilon(1e-6));
    CHECK(last.grad_norm == Catch::Approx(same.grad_norm).epsilon(1e-5));
  });
}

TEST_CASE("AdamW's number is the step's: how far a first update goes says which") {
  tests::on_first_ranks(1, "self", [](distributed::Communicator& comm) {
    for (const std::int64_t step : {1, 3}) {
      MemoryLedger ledger;
      TinyTraining training({.model = tests::tiny_llama(), .weight_decay = 0.0}, comm, ledger);
      const auto before = training.my_weights();
      training.engine().step(step);
      const auto after = training.my_weights();
      // (m / c1) / sqrt(v / c2) after one gradient g far above eps: (1 - b1) / (1 - b1^t) sqrt((1 - b2^t) / (1 - b2))
      const double t = static_cast<double>(step);
      const double moved = 0.01 * 0.1 / (1.0 - std::pow(0.9, t)) * std::sqrt((1.0 - std::pow(0.999, t)) / 0.001);
      double farthest = 0.0;
      for (std::size_t i = 0; i < after.size(); ++i) {
        farthest = std::max(farthest, std::abs(static_cast<double>(after[i]) - before[i]));
      }
      CHECK(farthest == Catch::Approx(moved).epsilon(1e-2));
    }
  });
}

TEST_CASE("a step with a bad number changes no bit; skip goes on, stop says where") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    for (const int stage : {0, 1, 2, 3}) {
      MemoryLedger ledger;
      TinyTraining training({.model = tests::tiny_gpt2(), .stage = stage, .on_nonfinite = train::OnNonFinite::skip},
                            comm, ledger);
      training.engine().step(1);
      const auto good = training.my_weights();
      const float first = comm.rank() == 0 ? good.front() : 0.0F;
      set_first_weight(training, comm, kNan);
      const auto result = training.engine().step(2);
      CHECK(result.skipped);
      CHECK(result.bad_tensor == "wte.weight");
      set_first_weight(training, comm, first);
      CHECK(training.my_weights() == good);
      CHECK_FALSE(training.engine().step(3).skipped);
    }
  });
}

TEST_CASE("max_skips steps in a row are skipped, the next is refused, and a good step begins the count anew") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training(
        {.model = tests::tiny_gpt2(), .stage = 2, .on_nonfinite = train::OnNonFinite::skip, .max_skips = 3}, comm,
        ledger);
    const float first = comm.rank() == 0 ? training.my_weights().front() : 0.0F;
    for (const std::int64_t skips : {2, 3}) {
      set_first_weight(training, comm, kNan);
      for (std::int64_t skip = 1; skip <= skips; ++skip) CHECK(training.engine().step(skip).skips_in_a_row == skip);
      if (skips == 3) break;
      set_first_weight(training, comm, first);
      CHECK(training.engine().step(3).skips_in_a_row == 0);
    }
    std::string text;
    try {
      training.engine().step(4);
    } catch (const Error& error) {
      text = error.what();
      CHECK(error.failure() == Failure::non_finite);
      CHECK(error.seen_by_all_ranks());
    }
    CHECK(text.find("3 steps in a row were left out before it (train.max_skips = 3)") != std::string::npos);
  });
}

TEST_CASE("a loss scale that backs off is none of max_skips") {
  tests::on_first_ranks(1, "self", [](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training({.model = tests::tiny_gpt2(),
                           .precision = Precision::fp16,
                           .on_nonfinite = train::OnNonFinite::skip,
                           .loss_scaler = train::LossScaler::dynamic(1000, 0x1p24),
                           .max_skips = 1},
                          comm, ledger);
    int skipped = 0;
    for (std::int64_t step = 1; step <= 20; ++step) {
      const auto result = training.engine().step(step);
      skipped += result.skipped ? 1 : 0;
      CHECK(result.skips_in_a_row == 0);
    }
    CHECK(skipped > 1);
  });
}

TEST_CASE("stop ends in status 6 on every rank, naming step and tensor") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training({.model = tests::tiny_gpt2(), .stage = 2}, comm, ledger);
    set_first_weight(training, comm, kNan);
    std::string text;
    try {
      training.engine().step(1);
    } catch (const Error& error) {
      text = error.what();
      CHECK(error.failure() == Failure::non_finite);
      CHECK(error.seen_by_all_ranks());
    }
    CHECK(text.find("step 1: ") == 0);
    CHECK(text.find("gradient of wte.weight") != std::string::npos);
  });
}

TEST_CASE("a gradient that overflows under a finite loss is caught by the norm") {
  tests::on_first_ranks(1, "self", [](distributed::Communicator& comm) {
    int only_the_gradient = 0;
    for (const float weight : {1e37F, 3e37F, 1e38F, 2e38F, 3e38F}) {
      MemoryLedger ledger;
      TinyTraining training({.model = {.arch = "linear", .dim = 1, .ffn = 1, .vocab = 2, .seq = 1},
                             .global_batch = 1,
                             .optimizer = "sgd",
                             .on_nonfinite = train::OnNonFinite::skip},
                            comm, ledger);
      for (std::int64_t step = 1; step <= 12; ++step) {
        set_first_weight(training, comm, weight);
        const auto result = training.engine().step(step);
        CHECK(result.skipped == !(std::isfinite(result.loss) && std::isfinite(result.grad_norm)));
        only_the_gradient += std::isfinite(result.loss) && result.skipped;
      }
    }
    CHECK(only_the_gradient > 0);
  });
}

namespace {

/// The gradient of step 1, from the change of the weights by plain SGD.
std::vector<float> gradient_in(Precision precision, const train::LossScaler& scaler, distributed::Communicator& comm) {
  MemoryLedger ledger;
  TinyTraining training({.model = tests::tiny_llama(),
                         .precision = precision,
                         .optimizer = "sgd",
                         .weight_decay = 0.0,
                         .momentum = 0.0,
                         .grad_clip = 0.0,
                         .loss_scaler = scaler,
                         .schedule = {.kind = "constant", .lr = 1.0}},
                        comm, ledger);
  std::vector<float> gradient = training.my_weights();
  CHECK_FALSE(training.engine().step(1).skipped);
  const std::vector<float> after = training.my_weights();
  for (std::size_t i = 0; i < after.size(); ++i) gradient[i] -= after[i];
  return gradient;
}

}  // namespace

TEST_CASE("gradients in fp16 are f32's within some of its roundings where the scale keeps them in its range") {
  tests::on_first_ranks(1, "self", [](distributed::Communicator& comm) {
    const auto wide = gradient_in(Precision::f32, {}, comm);
    const double norm = distance(wide, std::vector<float>(wide.size()));
    const auto error = [&](const train::LossScaler& scaler) {
      return distance(gradient_in(Precision::fp16, scaler, comm), wide) / norm;
    };
    CHECK(error(train::LossScaler::fixed(0x1p10)) < 4.0 * 0x1p-11);
    CHECK(error(train::LossScaler::dynamic(2000)) < 4.0 * 0x1p-11);
    CHECK(error(train::LossScaler::fixed(0x1p-16)) > 0.1);  // most gradients are below the smallest subnormal number
  });
}

TEST_CASE("in f32 a scale of the loss changes no bit, of the clipped update neither") {
  tests::on_first_ranks(2 <= test::world_size() ? 2 : 1, "mpi", [](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyRun run{.model = tests::tiny_llama(), .stage = 2, .steps = 4, .grad_clip = 0.01};
    const auto plain = TinyTraining(run, comm, ledger).result();
    run.loss_scaler = train::LossScaler::dynamic(2);
    CHECK(TinyTraining(run, comm, ledger).result() == plain);
  });
}

TEST_CASE("a scale that overflows is halved, the step left out, until the run trains") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training({.model = tests::tiny_gpt2(),
                           .precision = Precision::fp16,
                           .stage = 3,
                           .loss_scaler = train::LossScaler::dynamic(1000, 0x1p24)},
                          comm, ledger);
    const auto begin = training.my_weights();
    std::int64_t step = 1;
    double scale = 0x1p24;
    for (auto result = training.engine().step(step); result.skipped; result = training.engine().step(++step)) {
      CHECK(result.loss_scale == scale);
      CHECK(std::isfinite(result.loss));
      CHECK_FALSE(result.bad_tensor.empty());
      CHECK(training.my_weights() == begin);
      scale /= 2.0;
      REQUIRE(step < 20);
    }
    CHECK(step > 1);
    CHECK(training.engine().loss_scaler().scale() == scale);
    CHECK(training.my_weights() != begin);
    CHECK_FALSE(training.engine().step(step + 1).skipped);
  });
}

TEST_CASE("what the scale cannot answer is on_nonfinite's: a fixed one's overflow, and a loss that is not finite") {
  tests::on_first_ranks(1, "self", [](distributed::Communicator& comm) {
    const auto text_of_first_step = [&](const train::LossScaler& scaler, bool bad_weight) {
      MemoryLedger ledger;
      TinyTraining training({.model = tests::tiny_gpt2(), .precision = Precision::fp16, .loss_scaler = scaler}, comm,
                            ledger);
      if (bad_weight) set_first_weight(training, comm, kNan);
      try {
        training.engine().step(1);
      } catch (const Error& error) {
        CHECK(error.failure() == Failure::non_finite);
        return std::string(error.what());
      }
      return std::string();
    };
    CHECK(text_of_first_step(train::LossScaler::fixed(0x1p24), false)
              .find("is not finite at a loss scale of 16777216, "
                    "first in the gradient of ") != std::string::npos);
    CHECK(text_of_first_step(train::LossScaler::dynamic(10), true).find("the loss (nan)") != std::string::npos);
  });
}
