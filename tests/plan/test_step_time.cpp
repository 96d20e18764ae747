// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_step_time.cpp: a simulated network in the estimate of a step's time.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include <kozero/core/device.hpp>
#include <kozero/plan/network_delay.hpp>
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
    settings.zero.stage = 3;
    settings.zero.prefetch_units = 0;
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
    settings.zero.prefetch_units = 1;
    const plan::StepTime hidden = time(0.5, 30.0, true);
    CHECK(hidden.hidden == Approx(std::min(bytes_s + calls_s - fast, hidden.products + hidden.streams)));
    CHECK(hidden.communication + hidden.hidden == Approx(bytes_s + calls_s));
    CHECK(time(0.0, 0.0, true).hidden == 0.0);  // these rates do not overlap without it
    settings.zero.prefetch_units = 0;
    CHECK(time(0.5, 30.0, false).hidden == 0.0);
    CHECK((time(0.5, 30.0, true).hidden < hidden.hidden) == (ranks > 1));
  }
}

TEST_CASE(
    "a network's delay: reductions hide behind backward, in stage 3 gathers that are prefetched behind both passes") {
  plan::Exchange exchange{
      .stage = 2, .reduced = 1e9, .gathered = 0.5e9, .reductions = 10, .gathers = 20, .passes_s = 6};
  const auto exposed = [&](double gbit, double latency_us) {
    return plan::network_delay(exchange, gbit, latency_us).exposed;
  };
  CHECK(exposed(0.0, 0.0) == 0.0);
  CHECK(exposed(1.0, 0.0) == Approx(12.0 - 4.0));  // 8 s of reductions, of which 2/3 of 6 s are hidden
  CHECK(exposed(8.0, 0.0) == Approx(0.5));         // the gather
  CHECK(exposed(8.0, 1e5) == Approx(0.5 + 2.0));   // 20 calls of 0.1 s; 1 + 1 s are hidden
  exchange.stage = 3;
  CHECK(exposed(1.0, 0.0) == Approx(12.0 - 6.0));
  CHECK(exposed(8.0, 0.0) == 0.0);
  exchange.overlap = false;
  CHECK(exposed(8.0, 0.0) == Approx(1.0));
  exchange.prefetches = false;
  CHECK(exposed(8.0, 0.0) == Approx(1.5));
  exchange.sent_s = 1.0;  // the link takes that long anyway
  CHECK(exposed(8.0, 0.0) == Approx(0.5));
}

TEST_CASE("on several nodes, the collectives of mpi take the times of its algorithms") {
  plan::Rates rates;
  rates.products = rates.memory = 1e15;
  rates.link = rates.link_in_group = 12.5e9 / 8;
  const auto seconds = [&](int ranks, int ranks_per_node) {
    const io::Deck deck = io::parse_deck(
        "run.steps = 10\ndata.synthetic = true\ntrain.micro_batch = 1\nmodel.preset = \"small\"\nmodel.vocab = 256\n",
        "test.toml", {"train.global_batch=" + std::to_string(ranks)});
    const plan::MemoryPlan plan = plan::plans_of_all_stages(deck, "mpi", ranks, 256)[2];
    train::Settings settings = train::settings_of(deck, ranks, 256, 0);
    settings.zero.stage = 2;
    settings.comm.ranks_per_node = ranks_per_node;
    std::int64_t calls = 0;
    std::int64_t bytes = 0;
    for (const auto& arrays : plan.arrays) {
      calls += arrays.reductions + arrays.gathers;
      bytes += arrays.bytes * (arrays.reductions + arrays.gathers);
    }
    CHECK(calls == plan.sent.calls);
    CHECK(static_cast<double>(bytes) * (ranks - 1) / ranks == Approx(plan.sent.all).epsilon(1e-3));
    return plan::step_time(settings, plan, rates).communication;
  };
  CHECK(seconds(512, 0) == Approx(seconds(64, 0)).epsilon(0.02));  // without nodes only bytes and calls count
  CHECK(seconds(4096, 8) > 1.5 * seconds(512, 8));                 // a chain passes through all nodes
}

TEST_CASE("rates that were measured on a busy machine say so") {
  const io::Deck deck = io::parse_deck("run.steps = 10\ndata.synthetic = true\nmodel.preset = \"small\"\n", "test.toml",
                                       {"train.global_batch=8"});
  const train::Settings settings = train::settings_of(deck, 2, 256, 0);
  const auto source = [&](double load) {
    return plan::rates_at({.products = 1e9, .memory = 1e9, .load = load}, settings, 2, 1).source;
  };
  if (!kHostIsDevice) return;
  CHECK(source(1e5).find("; measured on a busy machine, whose load average was 100000.0 on ") != std::string::npos);
  CHECK(source(0.01).find("busy") == std::string::npos);
}

TEST_CASE("a plan has one unit, and no figure that reads 0.0 unless it is 0") {
  plan::MemoryPlan small;
  small.bytes.fill(0);
  small.bytes[0] = 2304;
  const plan::SizeUnit kib = plan::unit_of({small});
  CHECK(std::string(kib.name) == "KiB");
  CHECK(plan::text_in(kib, 2304.0) == "2.2");
  small.bytes[0] = std::int64_t{3} << 30;
  const plan::SizeUnit mib = plan::unit_of({small});
  CHECK(std::string(mib.name) == "MiB");
  CHECK(plan::text_in(mib, 2304.0) == "0.002");
  CHECK(plan::text_in(mib, 0.0) == "0.0");
  small.on_gpus = true;
  CHECK(std::string(plan::unit_of({small}).name) == "GiB");
}
