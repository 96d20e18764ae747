// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// step_time.cpp: a step's operations, and its time from rates of the processor, the links and the disk.
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <utility>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/collective_time.hpp>
#include <kozero/plan/network_delay.hpp>
#include <kozero/plan/step_time.hpp>
#include "kernels/matmul/matmul.hpp"

namespace kozero::plan {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Lower quartile of the seconds of a call, over as many calls as fit into 0.1 s: other processes may disturb some.
template <class Call>
double seconds_of(const Call& call) {
  constexpr double kLong = 0.1;
  call();  // sets up
  std::vector<double> times;
  for (const auto start = Clock::now(); times.size() < 3 || seconds_since(start) < kLong;) {
    const auto begin = Clock::now();
    call();
    Device().fence("kozero::plan::measure");
    times.push_back(seconds_since(begin));
  }
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 4);
  return times[times.size() / 4];
}

/// Operations per second of (rows, C) x (C, 4 C), with extents limited to keep the measurement short.
template <class Scalar>
double rate_of_products(const model::Config& config, std::int64_t rows) {
  constexpr std::int64_t kMost = 1024;
  const std::int64_t m = std::clamp<std::int64_t>(rows, 1, kMost);
  const std::int64_t k = std::min(config.dim, kMost);
  const std::int64_t n = std::min(4 * config.dim, 2 * kMost);
  MemoryLedger ledger;
  const auto c = ledger.take<Scalar>(Memory::workspace, "product", m, n);
  const auto a = ledger.take<Scalar>(Memory::workspace, "left", m, k);
  const auto b = ledger.take<Scalar>(Memory::workspace, "right", k, n);
  const double seconds = seconds_of([&] {
    kernels::matmul(Device(), c, kernels::Op::none, Matrix<const Scalar>(a), kernels::Op::none, Matrix<const Scalar>(b),
                    false);
  });
  return 2.0 * static_cast<double>(m * n * k) / seconds;
}

/// Bytes per second that a copy reads and writes.
double rate_of_memory() {
  constexpr std::int64_t kExtent = std::int64_t{16} << 20;  // 64 MiB: more than caches hold
  MemoryLedger ledger;
  const auto from = ledger.take<float>(Memory::workspace, "from", kExtent);
  const auto to = ledger.take<float>(Memory::workspace, "to", kExtent);
  return 2.0 * 4.0 * static_cast<double>(kExtent) / seconds_of([&] { Kokkos::deep_copy(Device(), to, from); });
}

struct Gpu {
  const char* name;
  const char* published;    // name in published_peak()
  double memory, link;      // link: NVLink one way; the bus where a node's GPUs are not all joined by NVLink
  double bus, host_memory;  // to the host, one way; host memory bandwidth per GPU, 8 GPUs on a host
  std::int64_t gigabytes;
};
constexpr double kPcie4 = 32e9;
constexpr double kPcie5 = 64e9;
constexpr double kDdr4 = 410e9 / 8;  // of 2 sockets with 8 channels of DDR4-3200
constexpr double kDdr5 = 614e9 / 8;  // of 2 sockets with 8 channels of DDR5-4800
// NVIDIA's data sheets of each. GH200: Grace Hopper with 96 GB, whose host has LPDDR5X behind NVLink-C2C. A6000: its
// NVLink joins pairs alone. B200: a share of HGX B200. A name of which another is a part comes first.
constexpr std::array kGpus = {Gpu{"a100", "A100", 2.04e12, 300e9, kPcie4, kDdr4, 80},
                              Gpu{"h100", "H100", 3.35e12, 450e9, kPcie5, kDdr5, 80},
                              Gpu{"gh200", "GH200", 4.0e12, 450e9, 450e9, 500e9, 96},
                              Gpu{"h200", "H200", 4.8e12, 450e9, kPcie5, kDdr5, 141},
                              Gpu{"b200", "B200", 8.0e12, 900e9, kPcie5, kDdr5, 180},
                              Gpu{"l40s", "L40S", 0.864e12, kPcie4, kPcie4, kDdr4, 48},
                              Gpu{"l40", "L40", 0.864e12, kPcie4, kPcie4, kDdr4, 48},
                              Gpu{"a6000", "RTX A6000", 0.768e12, kPcie4, kPcie4, kDdr4, 48},
                              Gpu{"rtx4090", "RTX 4090", 1.008e12, kPcie4, kPcie4, kDdr4, 24}};

const Gpu& gpu_named(const std::string& name) {
  const auto* const found = std::ranges::find_if(kGpus, [&](const Gpu& gpu) { return name == gpu.name; });
  require(found != kGpus.end(), "no figures for " + name);
  return *found;
}

/// Seconds of a step's collectives without groups, if `mpi` serves the ranks of several nodes; 0: it does not.
double seconds_over_nodes(const train::Settings& settings, const MemoryPlan& plan, const Rates& rates) {
  const int ranks_per_node = settings.comm.ranks_per_node;
  const bool over_nodes = plan.backend == "mpi" && ranks_per_node > 0 && ranks_per_node < plan.num_ranks &&
                          plan.num_ranks % ranks_per_node == 0 && plan.ranks_per_group == plan.num_ranks;
  if (!over_nodes || plan.on_gpus) return 0.0;
  const distributed::NodeLayout layout{plan.num_ranks / ranks_per_node, ranks_per_node};
  const distributed::NodeLink link{.bytes_per_second = rates.link * ranks_per_node, .memory = rates.memory};
  double seconds = 0.0;
  for (const SentArrays& arrays : plan.arrays) {
    seconds += static_cast<double>(arrays.reductions) *
                   distributed::reduction_seconds(arrays.bytes, layout, settings.comm.chunk_bytes, link) +
               static_cast<double>(arrays.gathers) * distributed::gather_seconds(arrays.bytes, layout, link);
  }
  return seconds;
}

}  // namespace

std::vector<std::string> published_gpus() {
  std::vector<std::string> names;
  for (const Gpu& gpu : kGpus) names.emplace_back(gpu.name);
  return names;
}

Speed measured_speed(const train::Settings& settings) {
  const double products = with_stored_type(settings.precision, [&](auto type) {
    return rate_of_products<decltype(type)>(settings.model, settings.batch.micro_batch * settings.step.seq);
  });
  double load = 0.0;
  if (getloadavg(&load, 1) != 1) load = 0.0;
  return {products, rate_of_memory(), load};
}

Rates rates_at(const Speed& speed, const train::Settings& settings, int ranks, int threads) {
  const int ranks_here = settings.comm.ranks_per_node > 0 ? std::min(settings.comm.ranks_per_node, ranks) : ranks;
  if (!kHostIsDevice) {
    for (const Gpu& gpu : kGpus) {
      if (device_name().find(gpu.published) != std::string::npos) return published_rates(gpu.name, settings, ranks);
    }
  }
  constexpr double kInAStep = 0.93;  // measured, relative to a product alone: other arrays share the caches
  const int here = Device().concurrency();
  const double share = static_cast<double>(threads) / here;
  Rates rates;
  const double gflops = speed.products / 1e9;
  rates.source = fmt::format("{:.{}g} GFLOP/s of products and {:.1f} GB/s of memory on {} thread{} here; a rank has {}",
                             gflops, gflops < 100.0 ? 2 : 5, speed.memory / 1e9, here, here == 1 ? "" : "s", threads);
  const auto cores = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  if (speed.load > cores) {
    rates.source += fmt::format(
        "; measured on a busy machine, whose load average was {:.1f} on {:.0f} cores: a free "
        "one is faster",
        speed.load, cores);
  }
  rates.products = kInAStep * speed.products * share;
  rates.memory = speed.memory * share;
  rates.link = rates.memory / 2.0;  // a byte sent is read and written
  if (ranks_here < ranks) rates.link = std::min(rates.link, distributed::NodeLink().bytes_per_second / ranks_here);
  rates.link_in_group = rates.link;
  rates.latency_s = 20e-6;
  rates.disk /= ranks_here;
  return rates;
}

Rates with_given_rates(Rates rates, const GivenRates& given) {
  rates.products = given.products;
  rates.memory = given.memory;
  rates.link = given.link;
  rates.link_in_group = given.link;
  rates.source = fmt::format("given: {:.4g} TFLOP/s of products, {:.4g} GB/s of memory, links of {:.4g} GB/s",
                             given.products / 1e12, given.memory / 1e9, given.link / 1e9);
  return rates;
}

Rates published_rates(const std::string& device, const train::Settings& settings, int ranks) {
  constexpr double kUtilization = 0.5;
  constexpr int kRanksPerNode = 8;
  const Gpu& gpu = gpu_named(device);
  Rates rates;
  rates.products = kUtilization * published_peak(gpu.published, settings.precision != Precision::f32);
  rates.memory = 0.8 * gpu.memory;
  rates.bus = 0.8 * gpu.bus;
  rates.host_memory = 0.8 * gpu.host_memory;
  rates.link = ranks <= kRanksPerNode ? 0.8 * gpu.link : 50e9;
  rates.link_in_group = settings.ranks_per_group <= kRanksPerNode ? 0.8 * gpu.link : 50e9;
  rates.latency_s = ranks <= kRanksPerNode ? 20e-6 : 60e-6;
  rates.overlaps = settings.zero.overlap;
  rates.source = fmt::format(
      "{}: half of the published peak, {:.0f} TFLOP/s, 80 % of its memory's {:.3g} TB/s, links of "
      "{:.0f} GB/s",
      gpu.published, rates.products / 1e12, gpu.memory / 1e12, rates.link / 1e9);
  if (rates.link_in_group != rates.link && settings.ranks_per_group < ranks) {
    rates.source += fmt::format(", of {:.0f} in a group", rates.link_in_group / 1e9);
  }
  return rates;
}

std::int64_t estimated_reserve(const MemoryPlan& plan) {
  if (!plan.on_gpus) return 0;
  constexpr std::int64_t kContext = 1536 * kMiB;
  constexpr std::int64_t kChannels = 32;
  constexpr std::int64_t kOfChannel = 16 * kMiB;  // to and from a neighbor, 4 MiB and as much again for small messages
  const int communicators = plan.num_ranks == 1 ? 0 : plan.ranks_per_group < plan.num_ranks ? 3 : 1;
  return kContext + communicators * kChannels * kOfChannel;
}

std::int64_t published_memory(const std::string& device) { return gpu_named(device).gigabytes * 1'000'000'000; }

std::string StepTime::limit() const {
  const std::array<std::pair<double, const char*>, 5> parts = {{{products, "products"},
                                                                {streams, "memory"},
                                                                {update, "the update"},
                                                                {communication, "communication"},
                                                                {disk, "the disk"}}};
  return std::ranges::max_element(parts)->second;
}

NetworkDelay network_delay(const Exchange& exchange, double gbit, double latency_us) {
  const double per_byte = gbit > 0.0 ? 8e-9 / gbit : 0.0, per_call = 1e-6 * latency_us;
  const double reduce_s = exchange.reduced * per_byte + exchange.reductions * per_call;
  const double gather_s = exchange.gathered * per_byte + exchange.gathers * per_call;
  const double delay = std::max(reduce_s + gather_s - exchange.sent_s, 0.0);
  if (delay == 0.0) return {};
  const bool gathers_early = exchange.stage == 3 && exchange.prefetches;
  const double hidable = (exchange.overlap ? reduce_s : 0.0) + (gathers_early ? gather_s : 0.0);
  const double beside = gathers_early ? exchange.passes_s : 2.0 / 3.0 * exchange.passes_s;
  const double hidden = std::min(delay * hidable / (reduce_s + gather_s), beside);
  return {delay - hidden, hidden};
}

StepTime step_time(const train::Settings& settings, const MemoryPlan& plan, const Rates& rates) {
  const model::Config& config = settings.model;
  const auto stored = static_cast<double>(parameter_bytes(settings.precision).stored);
  const auto tokens =
      static_cast<double>(settings.batch.micro_steps * settings.batch.micro_batch * settings.step.seq);  // of this rank
  const auto layers = static_cast<double>(config.layers);
  const auto dim = static_cast<double>(config.dim);
  StepTime time;

  // Recomputing a block repeats its forward pass without the last product, which is a third of the block's operations.
  const bool recomputes = settings.recompute.blocks > 0 && config.layers > 0;
  const double again = recomputes ? 1.0 - static_cast<double>(settings.recompute.blocks) / layers : 0.0;
  const double of_blocks = 2.0 * layers * 12.0 * dim * dim;  // of a forward pass, approximately
  // With the vocabulary in blocks, the logits are computed twice (model/head.hpp).
  const bool in_blocks = config.vocab_block > 0;
  const double logits_again = in_blocks ? 2.0 * static_cast<double>(config.vocab) * dim : 0.0;
  const double operations = plan.flops_per_token + std::max(again, 0.0) * of_blocks * 2.0 / 3.0 + logits_again;
  time.products = tokens * operations / rates.products;

  // A block keeps 17 values per channel and token (Korthikanti et al. 2022, arXiv:2205.05198); each is written once
  // and read three times, gradients included. Logits are written and read in float, in forward and backward.
  const double values = 17.0 * dim * layers * stored * (1.0 + 0.5 * std::max(again, 0.0));
  const double logits = static_cast<double>(config.vocab) * 4.0 * (in_blocks ? 1.5 : 1.0);
  time.streams = tokens * 4.0 * (values + logits) / rates.memory;

  const auto parameters = static_cast<double>(plan.num_parameters);
  const bool sharded = zero::placement_row(settings.zero.stage).optimizer == distributed::Placement::sharded;
  const auto trained = static_cast<double>(plan.num_trainable);
  const double updated = sharded ? trained / plan.ranks_per_group : trained;
  // Reads the gradient twice (for the norm and the update); reads and writes the weight and each state.
  const double update_bytes =
      4.0 * (4.0 + 2.0 * plan.num_states) + (settings.precision == Precision::f32 ? 0.0 : stored);
  const double added = 12.0 * updated * (settings.batch.micro_steps - 1);  // micro-steps' gradients
  time.update = (update_bytes * updated + added) / rates.memory;
  if (settings.offload.optimizer == MemorySource::Kind::host) {
    // A part's gradients and weights cross the bus while the host updates another part (src/train/host_update.hpp).
    const double on_host = update_bytes * updated / rates.host_memory;
    const bool moves_weights =
        settings.precision == Precision::f32 && settings.offload.parameters != MemorySource::Kind::host;
    const double to_host = moves_weights ? 8.0 : 4.0;
    time.update = std::max(on_host, to_host * updated / rates.bus) + (4.0 * updated + added) / rates.memory;
  }

  const bool has_groups = plan.ranks_per_group < plan.num_ranks;
  const auto across = static_cast<double>(has_groups ? plan.sent.across : plan.sent.all);
  const auto within = static_cast<double>(plan.sent.all) - across;
  const double over_nodes = seconds_over_nodes(settings, plan, rates);
  const double sent = plan.num_ranks == 1 ? 0.0
                      : over_nodes > 0.0  ? over_nodes
                                          : across / rates.link + within / rates.link_in_group +
                                               static_cast<double>(plan.sent.calls) * rates.latency_s;
  // Each micro-step gathers the weights twice, and each gather reads weights offloaded to the host over the bus.
  const double read = settings.offload.parameters == MemorySource::Kind::host
                          ? 2.0 * settings.batch.micro_steps * stored * parameters / plan.ranks_per_group / rates.bus
                          : 0.0;
  time.hidden = std::min(rates.overlaps ? sent + read : 0.0, 2.0 / 3.0 * time.products);
  time.communication = sent + read - time.hidden;
  if (plan.num_ranks > 1) {  // a simulated network
    const BytesSent& bytes = plan.sent;
    const NetworkDelay delay = network_delay({.stage = settings.zero.stage,
                                              .overlap = settings.zero.overlap,
                                              .prefetches = settings.zero.prefetch_units > 0,
                                              .reduced = static_cast<double>(bytes.all - bytes.gathered),
                                              .gathered = static_cast<double>(bytes.gathered),
                                              .reductions = static_cast<double>(bytes.calls - bytes.gathers),
                                              .gathers = static_cast<double>(bytes.gathers),
                                              .sent_s = sent,
                                              .passes_s = time.products + time.streams - time.hidden},
                                             settings.comm.throttle_gbit, settings.comm.latency_us);
    time.communication += delay.exposed;
    time.hidden += delay.hidden;
  }
  // Written state goes to the disk while the next step computes.
  const double one_way = static_cast<double>(plan.of(Memory::disk)) / rates.disk;
  time.disk = 2.0 * one_way - std::min(one_way, time.products);
  return time;
}

}  // namespace kozero::plan
