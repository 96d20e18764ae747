// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_optimizer.cpp: AdamW and SGD against PyTorch's formulas, for any division of the flat array.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <set>

#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/optim/optimizer.hpp>

namespace kozero::optim {
namespace {

constexpr std::int64_t kExtent = 300;

/// decay | no decay | decay | no decay, with boundaries inside packs of elements
std::vector<Segment> segments() { return {{0, 99, true}, {99, 64, false}, {163, 36, true}, {199, 101, false}}; }

std::vector<float> numbers(std::uint64_t seed) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < kExtent; ++i)
    values.push_back(2.0F * uniform_of(philox(seed, counter_of(i)).x[0]) - 1.0F);
  return values;
}

/// Weights, and the optimizer that updates them, with their memory.
class Training {
 public:
  explicit Training(const Config& config)
      : optimizer_(make_optimizer<Bfloat16>(config, segments(), ledger_)),
        weights_(ledger_.take<float>(Memory::parameters, "weights", kExtent)),
        rounded_(ledger_.take<Bfloat16>(Memory::parameters, "weights in 16 bits", kExtent)),
        gradient_(ledger_.take<float>(Memory::gradients, "gradient", kExtent)) {
    write(weights_, numbers(0));
  }

  /// One step; the flat array is divided at multiples of `piece`.
  void step(std::int64_t number, std::int64_t piece) {
    write(gradient_, numbers(static_cast<std::uint64_t>(number)));
    for (std::int64_t first = 0; first < kExtent; first += piece) {
      const std::int64_t extent = std::min(piece, kExtent - first);
      optimizer_->update(first, Target<Bfloat16>{weights_, rounded_}.part(first, extent),
                         slice(gradient_, first, extent), {number, 0.01, 0.5});
    }
    Device().fence();
  }

  [[nodiscard]] Optimizer<Bfloat16>& optimizer() { return *optimizer_; }
  [[nodiscard]] const MemoryLedger& ledger() const { return ledger_; }
  [[nodiscard]] std::vector<float> weights() const { return read(weights_); }
  /// Whether every weight also has its 16-bit value.
  [[nodiscard]] bool rounds() const {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), rounded_);
    const std::vector<float> master = read(weights_);
    bool right = true;
    for (std::size_t i = 0; i < master.size(); ++i) {
      right = right && host(i).bits() == Bfloat16(master[i]).bits();
    }
    return right;
  }

  static std::vector<float> read(Vector<float> values) {
    std::vector<float> host(values.extent(0));
    Kokkos::deep_copy(HostVector<float>(host.data(), host.size()), values);
    return host;
  }

 private:
  static void write(Vector<float> to, const std::vector<float>& from) {
    Kokkos::deep_copy(to, HostVector<const float>(from.data(), from.size()));
  }

  MemoryLedger ledger_;
  std::unique_ptr<Optimizer<Bfloat16>> optimizer_;
  Vector<float> weights_;
  Vector<Bfloat16> rounded_;
  Vector<float> gradient_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double decay_at(std::int64_t i, const Config& config) {
  return i < 99 || (i >= 163 && i < 199) ? config.weight_decay : 0.0;
}

void require_near(const std::vector<float>& got, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i, got[i], expected[i]);
    REQUIRE(std::abs(got[i] - expected[i]) <= 2e-6);
  }
}

TEST_CASE("adamw follows PyTorch's formula for 10 steps, by segment") {
  const Config config{.kind = "adamw", .weight_decay = 0.2};
  Training training(config);
  const std::vector<float> start = numbers(0);
  std::vector<double> weights(start.begin(), start.end());
  std::vector<double> m(kExtent), v(kExtent);
  for (int t = 1; t <= 10; ++t) {
    training.step(t, kExtent);
    const std::vector<float> gradient = numbers(static_cast<std::uint64_t>(t));
    for (std::int64_t k = 0; k < kExtent; ++k) {
      const auto i = static_cast<std::size_t>(k);
      const double g = 0.5 * gradient[i];
      weights[i] -= 0.01 * decay_at(k, config) * weights[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double denominator = std::sqrt(v[i]) / std::sqrt(1.0 - std::pow(0.999, t)) + 1e-8;
      weights[i] -= 0.01 / (1.0 - std::pow(0.9, t)) * m[i] / denominator;
    }
  }
  require_near(training.weights(), weights);
}

TEST_CASE("sgd follows PyTorch's formula for 10 steps, by segment") {
  const Config config{.kind = "sgd", .weight_decay = 0.2, .momentum = 0.9};
  Training training(config);
  const std::vector<float> start = numbers(0);
  std::vector<double> weights(start.begin(), start.end());
  std::vector<double> velocity(kExtent);
  for (int t = 1; t <= 10; ++t) {
    training.step(t, kExtent);
    const std::vector<float> gradient = numbers(static_cast<std::uint64_t>(t));
    for (std::int64_t k = 0; k < kExtent; ++k) {
      const auto i = static_cast<std::size_t>(k);
      velocity[i] = 0.9 * velocity[i] + 0.5 * gradient[i] + decay_at(k, config) * weights[i];
      weights[i] -= 0.01 * velocity[i];
    }
  }
  require_near(training.weights(), weights);
}

TEST_CASE("updated weights are left in 16 bits too") {
  for (const char* kind : {"adamw", "sgd"}) {
    Training training({.kind = kind, .momentum = 0.9});
    for (int t = 1; t <= 2; ++t) {
      training.step(t, 70);
      CHECK(training.rounds());
    }
  }
}

TEST_CASE("the bits do not depend on how the flat array is cut") {
  for (const char* kind : {"adamw", "sgd"}) {
    const Config config{.kind = kind, .momentum = 0.9};
    Training whole(config);
    Training cut(config);
    for (int t = 1; t <= 5; ++t) {
      whole.step(t, kExtent);
      cut.step(t, 7 * t);
    }
    CHECK(same_bits(whole.weights(), cut.weights()));
    for (std::size_t s = 0; s < whole.optimizer().states().size(); ++s) {
      CHECK(same_bits(Training::read(whole.optimizer().states()[s].values),
                      Training::read(cut.optimizer().states()[s].values)));
    }
  }
}

TEST_CASE("more runs of flags than one kernel takes, of several rates, are updated as one by one at their rates") {
  std::vector<Segment> many;
  std::vector<Segment> of_one_rate;
  for (std::int64_t k = 0, first = 0; k < 40; ++k) {
    many.push_back({first, 150 + 13 * k, k % 2 == 0, k > 30 && k % 4 < 2 ? 0.25 : 1.0});
    of_one_rate.push_back({first, many.back().extent, many.back().decay});
    first += many.back().extent;
  }
  const std::int64_t extent = many.back().first + many.back().extent;
  for (const char* kind : {"adamw", "sgd"}) {
    MemoryLedger ledger;
    const Config config{.kind = kind, .weight_decay = 0.2, .momentum = 0.9};
    const auto at_once = make_optimizer<float>(config, many, ledger);
    const auto one_by_one = make_optimizer<float>(config, of_one_rate, ledger);
    const auto a = ledger.take<float>(Memory::parameters, "a", extent);
    const auto b = ledger.take<float>(Memory::parameters, "b", extent);
    const auto gradient = ledger.take<float>(Memory::gradients, "gradient", extent);
    for (const auto& values : {a, b, gradient}) Kokkos::deep_copy(values, 0.5F);
    at_once->update(0, {a}, gradient, {1, 0.01, 1.0});
    for (const Segment& one : many) {
      one_by_one->update(one.first, Target<float>{b}.part(one.first, one.extent),
                         slice(gradient, one.first, one.extent), {1, 0.01 * one.rate, 1.0});
    }
    Device().fence();
    const std::vector<float> got = Training::read(a);
    CHECK(same_bits(got, Training::read(b)));
    CHECK(std::set<float>(got.begin(), got.end()).size() == 4);  // decayed or not, of two rates
  }
}

TEST_CASE("without decay, a gradient and states of zero change no bit of a weight: pads and frozen tensors") {
  for (const char* kind : {"adamw", "sgd"}) {
    MemoryLedger ledger;
    const Config config{.kind = kind, .weight_decay = 0.2, .momentum = 0.9};
    const auto optimizer = make_optimizer<Bfloat16>(config, {{0, 100, false}}, ledger);
    const auto weights = ledger.take<float>(Memory::parameters, "weights", 100);
    const auto stored = ledger.take<Bfloat16>(Memory::parameters, "stored", 100);
    const auto gradient = ledger.take<float>(Memory::gradients, "gradient", 100);
    const auto host = Kokkos::create_mirror_view(weights);
    for (int i = 0; i < 100; ++i) host(i) = std::ldexp(i % 2 == 0 ? -1.1F : 1.1F, i - 50);
    host(7) = -0.0F;
    Kokkos::deep_copy(weights, host);
    const std::vector<float> before = Training::read(weights);
    for (std::int64_t t = 1; t <= 3; ++t) optimizer->update(0, {weights, stored}, gradient, {t, 0.01, 0.5});
    Device().fence();
    CHECK(same_bits(Training::read(weights), before));
    for (const auto& state : optimizer->states()) {
      for (const float value : Training::read(state.values)) REQUIRE(value == 0.0F);
    }
  }
}

TEST_CASE("states have PyTorch's names and are booked") {
  Training adamw({.kind = "adamw"});
  Training sgd({.kind = "sgd"});
  REQUIRE(adamw.optimizer().states().size() == 2);
  CHECK(adamw.optimizer().states()[0].name == "exp_avg");
  CHECK(adamw.optimizer().states()[1].name == "exp_avg_sq");
  REQUIRE(sgd.optimizer().states().size() == 1);
  CHECK(sgd.optimizer().states()[0].name == "momentum_buffer");
  CHECK(adamw.ledger().bytes(Memory::optimizer) == 2 * 4 * kExtent);
  CHECK(sgd.ledger().bytes(Memory::optimizer) == 4 * kExtent);
  CHECK(num_states("adamw") == 2);
  CHECK(num_states("sgd") == 1);
}

TEST_CASE("a ledger that only plans books the states of an optimizer") {
  MemoryLedger plan(MemoryLedger::Mode::plan);
  const auto optimizer = make_optimizer<float>({.kind = "adamw"}, {{0, 1LL << 40, true}}, plan);
  CHECK(plan.bytes(Memory::optimizer) == 8LL << 40);
}

TEST_CASE("an unknown kind is refused with the accepted ones") {
  MemoryLedger ledger;
  CHECK_THROWS_WITH(make_optimizer<float>({.kind = "adam"}, segments(), ledger),
                    Catch::Matchers::Equals("optim.kind = \"adam\": accepted are adamw, sgd"));
}

TEST_CASE("gaps between segments and parts outside the array are refused") {
  MemoryLedger ledger;
  CHECK_THROWS_AS(make_optimizer<float>({}, {{0, 10, true}, {11, 5, true}}, ledger), Error);
  const auto optimizer = make_optimizer<float>({}, {{0, 10, true}}, ledger);
  const auto six = ledger.take<float>(Memory::parameters, "six", 6);
  CHECK_THROWS_AS(optimizer->update(5, {six}, six, {}), Error);
}

}  // namespace
}  // namespace kozero::optim
