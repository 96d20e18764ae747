// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench_kernels.cpp: the time of every kernel of a training step at a deck's shapes, beside the machine's peak.
// Each round calls every kernel once, after two probes, of memory and of products in the first-level caches; medians
// over the rounds are printed. A product's share is of its probe's rate; without a probe, of the fastest product's
// rate. A memory-bound kernel's share is of plain loops that read, overwrite and update in place equally many bytes,
// timed after it in each round. The memory probe would be a wrong reference: a processor reads the lines that it
// overwrites, which is not counted, and writes to small arrays stay in a cache. "of library" is a product's rate over
// that of oneDNN, which computes the same product in each round. On a GPU, two events on the stream time each call;
// that includes the launch of its first kernel. kernel_case.hpp defines the counted operations and bytes, and provides
// operands that are in no cache.
#include <fmt/format.h>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include <kozero/core/architecture.hpp>
#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/timing.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/run/session.hpp>
#include <kozero/train/settings.hpp>
#include "io/deck/schema.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/matmul/product_tuning.hpp"
#include "src/bench/bench.hpp"
#include "src/bench/kernel_case.hpp"

namespace kozero::bench {

using run::Session;

namespace {

struct TimedKernel {
  KernelCase kernel;
  std::vector<double> seconds;
  std::vector<double> library_seconds;  ///< the library's time, if our own kernel is timed
  std::vector<double> plain_seconds;    ///< of plain loops over as many bytes

  [[nodiscard]] bool multiplies() const { return kernel.measure == KernelCase::Measure::operations; }
  /// Operations or bytes per second.
  [[nodiscard]] double rate() const { return kernel.work / median(seconds); }
  /// The library's time over this kernel's.
  [[nodiscard]] double of_library() const { return median(library_seconds) / median(seconds); }
};

KernelShapes shapes_of(const train::Settings& settings) {
  return {settings.model, settings.batch.micro_batch, settings.batch.micro_steps};
}

train::Settings settings_of(const io::Deck& deck, int num_ranks) {
  const auto settings = train::settings_of(deck, num_ranks, data::vocab_of(deck), 0);
  if (architecture(settings.model.arch).decoder) return settings;
  throw Error(Failure::deck,
              "bench kernels: model.arch = " + settings.model.arch + " has no kernels worth timing; accepted: " +
                  io::joined(architectures_where([](const Architecture& each) { return each.decoder; })));
}

double seconds_of(const std::function<void()>& call, OperandRings& rings) {
  rings.inputs.begin_call();
  rings.outputs.begin_call();
  DeviceMarks marks;
  const auto begin = marks.set();
  call();
  const auto end = marks.set();
  Device().fence("kozero::bench::kernel");
  return marks.seconds(begin, end);
}

void time_once(TimedKernel& timed, OperandRings& rings, bool beside_library) {
  timed.seconds.push_back(seconds_of(timed.kernel.call, rings));
  if (timed.kernel.plain) timed.plain_seconds.push_back(seconds_of(timed.kernel.plain, rings));
  if (!beside_library || !timed.kernel.in_library) return;
  kernels::use_compared_library(true);
  timed.library_seconds.push_back(seconds_of(timed.kernel.call, rings));
  kernels::use_compared_library(false);
}

/// Times the kernels of `shapes`, the probes first. An uncounted round comes before, in which kernels do what they do
/// once.
template <class Scalar>
std::vector<TimedKernel> timed_kernels(const KernelShapes& shapes, int rounds) {
  MemoryLedger ledger;
  OperandRings rings(ledger, shapes.largest_call_bytes());
  std::vector<KernelCase> cases = {stream_probe(rings)};
  const KernelCase products = product_probe<Scalar>();
  if (products.work > 0.0) cases.push_back(products);
  const bool beside_library = !kernels::compared_library().empty();
  add_product_cases<Scalar>(cases, shapes, rings);
  add_stream_cases<Scalar>(cases, shapes, rings);
  std::vector<TimedKernel> kernels;
  for (auto& one : cases) kernels.push_back({std::move(one), {}, {}, {}});
  warm_up_device();
  for (int round = 0; round <= rounds; ++round) {
    for (auto& one : kernels) {
      time_once(one, rings, beside_library);
      if (round > 0) continue;
      one.seconds.clear();
      one.library_seconds.clear();
      one.plain_seconds.clear();
    }
  }
  return kernels;
}

/// The references for shares: operations per second of the product probe or the fastest product, and the stream probe's
/// bytes per second.
struct Best {
  double product = 0.0;
  std::string product_of;
  double stream = 0.0;

  explicit Best(const std::vector<TimedKernel>& kernels) : stream(kernels.front().rate()) {
    for (const auto& one : kernels) {
      if (!one.multiplies() || one.rate() <= product) continue;
      product = one.rate();
      product_of = one.kernel.name;
    }
  }
  [[nodiscard]] double share(const TimedKernel& one) const {
    if (one.multiplies()) return one.rate() / product;
    return one.plain_seconds.empty() ? 1.0 : median(one.plain_seconds) / median(one.seconds);
  }
};

void print_table(const std::vector<TimedKernel>& kernels, const Best& best) {
  std::cout << fmt::format("{:<38}{:<32}{:>6}{:>13}{:>13}{:>16}{:>8}{:>12}\n", "kernel", "shape", "calls",
                           "ms per call", "ms per step", "rate", "share", "of library");
  double step = 0.0;
  double operations = 0.0;
  for (const auto& one : kernels) {
    const double milliseconds = 1e3 * median(one.seconds);
    const double in_step = milliseconds * static_cast<double>(one.kernel.calls);
    step += in_step;
    if (one.multiplies()) operations += one.kernel.work * static_cast<double>(one.kernel.calls);
    const std::string beside = one.library_seconds.empty() ? "" : fmt::format("{:>11.2f}x", one.of_library());
    std::cout << fmt::format("{:<38}{:<32}{:>6}{:>13.3f}{:>13.2f}{:>9.1f} {}{:>6.0f} %{}\n", one.kernel.name,
                             one.kernel.shape, one.kernel.calls, milliseconds, in_step, one.rate() / 1e9,
                             one.multiplies() ? "GFLOP/s" : "GB/s   ", 100.0 * best.share(one), beside);
  }
  std::cout << fmt::format(
      "{:.1f} ms in all for the kernels of a step; shares are of {:.1f} GFLOP/s, {}, and of plain loops over the "
      "same bytes (stream probe: {:.1f} GB/s)\n",
      step, best.product / 1e9, best.product_of, best.stream / 1e9);
  std::cout << fmt::format(
      "step share = (sum of 2 M N K of products and of attention's half squares) / time / peak = {:.1f} GFLOP / {:.1f} "
      "ms / {:.1f} GFLOP/s = {:.1f} %\n",
      operations / 1e9, step, best.product / 1e9, 100.0 * operations / (step / 1e3) / best.product);
}

nlohmann::ordered_json json_of(const std::vector<TimedKernel>& kernels, const Best& best) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& one : kernels) {
    rows.push_back({{"kernel", one.kernel.name},
                    {"shape", one.kernel.shape},
                    {"calls", one.kernel.calls},
                    {"seconds", median(one.seconds)},
                    {one.multiplies() ? "flop_per_s" : "bytes_per_s", one.rate()},
                    {"share", best.share(one)}});
    if (!one.library_seconds.empty()) rows.back()["of_library"] = one.of_library();
  }
  return {{"kernels", rows}};
}

}  // namespace

void bench_kernels(const distributed::Environment& environment, const Arguments& arguments) {
  const BenchArguments given("kernels", 7, arguments);

  Session session(environment, [&](distributed::Communicator& comm) { return given.deck.read(comm); });
  const auto settings =
      distributed::agreed(session.control(), [&] { return settings_of(session.deck(), session.control().size()); });
  const KernelShapes shapes = shapes_of(settings);
  const auto kernels = with_stored_type(settings.precision,
                                        [&](auto type) { return timed_kernels<decltype(type)>(shapes, given.runs); });
  if (!session.is_first_rank()) return;
  const Best best(kernels);
  std::cout << fmt::format("{}: {}, {} sequences of {} tokens per micro-step, {}, {} per rank\n", session.deck().source,
                           shapes.model.arch, shapes.batch, shapes.model.seq, name_of(settings.precision),
                           session.runtime().placement());
  print_table(kernels, best);
  given.json.print(json_of(kernels, best));
}

}  // namespace kozero::bench
