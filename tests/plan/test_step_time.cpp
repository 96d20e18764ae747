// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_step_time.cpp: a simulated network in the estimate of a step's time.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include <kozero/plan/step_time.hpp>

using namespace kozero;
using Catch::Approx;

TEST_CASE("a simulated network delays every byte and call, as far as the link is faster and products do not hide it") {
  const io::Deck deck = io::parse_deck(
      "run.steps = 10\ndata.synthetic = true\ntrain.global_batch = 8\nmodel.preset = \"small\"\nmodel.vocab = 256\n",
      "test.toml", {});
  for (const int ranks : {1, 2, 4}) {
    const plan::MemoryPlan plan = plan::plans_of_all_stages(deck, ranks == 1 ? "self" : "mpi", ranks, 256)[3];
    train::Settings settings = train::settings_of(deck, ranks, 256, 0);
    plan::Rates rates;
    rates.products = rates.memory = 1e15;
    rates.link = rates.link_in_group = 10e9;
    rates.latency_s = 1e-6;
    const auto time = [&](double gbit, double latency_us, bool overlaps) {
      settings.comm.throttle_gbit = gbit;
      settings.comm.latency_us = latency_us;
      settings.zero.overlap = overlaps;
      return plan::step_time(settings, plan, rates);
    };
    const double fast = time(0.0, 0.0, false).communication;
    CHECK(time(1000.0, 0.0, false).communication == fast);  // the link is slower than that
    const double bytes_s = 8.0 * static_cast<double>(plan.sent.all) / 0.5e9;
    const double calls_s = ranks == 1 ? 0.0 : 30e-6 * static_cast<double>(plan.sent.calls);
    CHECK(time(0.5, 0.0, false).communication == Approx(bytes_s));
    CHECK(time(0.5, 30.0, false).communication == Approx(bytes_s + calls_s));
    CHECK((fast > 0.0) == (ranks > 1));

    rates.products = 1e9;
    const plan::StepTime hidden = time(0.5, 30.0, true);
    CHECK(hidden.hidden == Approx(std::min(bytes_s + calls_s - fast, 2.0 / 3.0 * hidden.products)));
    CHECK(hidden.communication + hidden.hidden == Approx(bytes_s + calls_s));
    CHECK(time(0.5, 30.0, false).hidden == 0.0);
    CHECK(time(0.0, 0.0, true).hidden == 0.0);  // these rates do not overlap without it
  }
}
