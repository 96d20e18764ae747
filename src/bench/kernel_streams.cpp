// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// kernel_streams.cpp: the memory-bound kernels, plain loops over as many bytes, and the probe of memory bandwidth.
#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include <kozero/core/precision.hpp>
#include <kozero/core/random.hpp>
#include "kernels/launch/exact_sum.hpp"
#include "kernels/launch/fill.hpp"
#include "kernels/launch/for_each.hpp"
#include "kernels/ops/adamw.hpp"
#include "kernels/ops/bias.hpp"
#include "kernels/ops/cross_entropy.hpp"
#include "kernels/ops/embedding.hpp"
#include "kernels/ops/layernorm.hpp"
#include "kernels/ops/rmsnorm.hpp"
#include "kernels/ops/rope.hpp"
#include "kernels/ops/swiglu.hpp"
#include "src/bench/kernel_case.hpp"

namespace kozero::bench {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

/// Random tokens of a vocabulary, the same in every run.
using Tokens = Kokkos::View<Token*, DeviceMemory>;

Tokens random_tokens(std::int64_t extent, std::int64_t vocab) {
  Tokens tokens("kozero::bench::tokens", static_cast<std::size_t>(extent));
  const auto host = Kokkos::create_mirror_view(tokens);
  for (std::size_t i = 0; i < host.extent(0); ++i) {
    host(i) = static_cast<Token>(philox(4, counter_of(i)).x[0] % static_cast<std::uint64_t>(vocab));
  }
  Kokkos::deep_copy(tokens, host);
  return tokens;
}

/// The operands of one call: matrices of `rows` x `columns`, and vectors of either extent.
struct Operands {
  OperandRings* rings;
  std::int64_t rows, columns;

  template <class T>
  [[nodiscard]] Matrix<const T> input(std::int64_t times = 1) const {
    return rings->inputs.take<const T>(rows, times * columns);
  }
  template <class T>
  [[nodiscard]] Matrix<T> output(std::int64_t times = 1) const {
    return rings->outputs.take<T>(rows, times * columns);
  }
  template <class T>
  [[nodiscard]] Vector<const T> flat_input() const {
    return rings->inputs.take<const T>(rows * columns);
  }
  template <class T>
  [[nodiscard]] Vector<T> flat_output() const {
    return rings->outputs.take<T>(rows * columns);
  }
  template <class T>
  [[nodiscard]] Vector<const T> channel_input() const {
    return rings->inputs.take<const T>(columns);
  }
  [[nodiscard]] Vector<float> channel_output() const { return rings->outputs.take<float>(columns); }
  [[nodiscard]] Vector<const float> row_input() const { return rings->inputs.take<const float>(rows); }
  [[nodiscard]] Vector<float> row_output() const { return rings->outputs.take<float>(rows); }
  [[nodiscard]] Vector<float> reduction() const {
    return rings->outputs.take<float>(kernels::row_reduction_workspace(columns));
  }
};

/// Bytes per element that a call reads, writes, or updates in place.
struct Mix {
  std::int64_t read = 0, written = 0, updated = 0;

  [[nodiscard]] std::int64_t bytes() const { return read + written + 2 * updated; }
};

/// Arrays of equally many words. A loop passes over all arrays side by side, one chunk of each in turn.
template <class T>
struct Strips {
  T* first = nullptr;
  std::int64_t count = 0, extent = 0, chunk = 0;

  /// As many arrays as a kernel with `bytes` bytes per element has.
  Strips(OperandRing& ring, std::int64_t bytes, std::int64_t elements)
      : count((bytes + kFloat - 1) / kFloat), extent(count > 0 ? bytes * elements / kFloat / count : 0) {
    if (count > 0) first = ring.take<T>(count * extent).data();
  }

  /// body(words, extent) for chunk `index` of every strip.
  template <class Body>
  void for_each_chunk(std::int64_t index, const Body& body) const {
    const std::int64_t begin = index * chunk;
    const std::int64_t here = std::min(chunk, extent - begin);
    for (std::int64_t strip = 0; here > 0 && strip < count; ++strip) body(first + strip * extent + begin, here);
  }
};

/// Loops that read, overwrite and update as many words of as many arrays as a kernel, and compute nothing. They write
/// 16-bit values >= 0.5, since subnormal numbers would slow the kernels that read them.
struct PlainLoops {
  static constexpr std::uint32_t kHalf = 0x3F003F00U;
  static constexpr std::int64_t kChunk = 64;  // words: a processor loads those of all arrays at once
  static constexpr std::int64_t kChunksOfPart = kernels::kElementBlock / kChunk;
  Strips<const std::uint32_t> read;
  Strips<std::uint32_t> written, updated;
  std::int64_t chunks = 1;

  PlainLoops(OperandRings& rings, const Mix& mix, std::int64_t elements)
      : read(rings.inputs, mix.read, elements),
        written(rings.outputs, mix.written, elements),
        updated(rings.outputs, mix.updated, elements) {
    const std::int64_t longest = std::max({read.extent, written.extent, updated.extent});
    chunks = std::max<std::int64_t>((longest + kChunk - 1) / kChunk, 1);
    read.chunk = (read.extent + chunks - 1) / chunks;
    written.chunk = (written.extent + chunks - 1) / chunks;
    updated.chunk = (updated.extent + chunks - 1) / chunks;
  }

  [[nodiscard]] KOKKOS_FUNCTION static std::uint32_t halved(std::uint32_t word) { return (word & 0x007F007FU) | kHalf; }

  /// On a host, for part `part` of the strips. A template, since nvcc warns of unused host functions.
  template <class Sum>
  void run_part(std::int64_t part, Sum& sum) const {
    Sum local = 0;
    const std::int64_t end = std::min(chunks, (part + 1) * kChunksOfPart);
    for (std::int64_t chunk = part * kChunksOfPart; chunk < end; ++chunk) {
      read.for_each_chunk(chunk, [&](const std::uint32_t* words, std::int64_t extent) {
        for (std::int64_t i = 0; i < extent; ++i) local += words[i];
      });
      written.for_each_chunk(chunk, [](std::uint32_t* words, std::int64_t extent) {
        kernels::simd_loop(extent, [words](std::int64_t i) { words[i] = kHalf; });
      });
      updated.for_each_chunk(chunk, [](std::uint32_t* words, std::int64_t extent) {
        kernels::simd_loop(extent, [words](std::int64_t i) { words[i] = halved(words[i]); });
      });
    }
    sum += local;
  }

  /// On a GPU: the threads of a warp process neighboring words.
  KOKKOS_FUNCTION void run_words(std::int64_t thread, std::uint32_t& sum) const {
    for (std::int64_t i = thread; i < read.count * read.extent; i += chunks) sum += read.first[i];
    for (std::int64_t i = thread; i < written.count * written.extent; i += chunks) written.first[i] = kHalf;
    for (std::int64_t i = thread; i < updated.count * updated.extent; i += chunks) {
      updated.first[i] = halved(updated.first[i]);
    }
  }

  KOKKOS_FUNCTION void operator()(std::int64_t part, std::uint32_t& sum) const {
    KOKKOS_IF_ON_HOST((run_part(part, sum);))
    KOKKOS_IF_ON_DEVICE((run_words(part, sum);))
  }
};

void run(const PlainLoops& loops) {
  const std::int64_t parts =
      kHostIsDevice ? (loops.chunks + PlainLoops::kChunksOfPart - 1) / PlainLoops::kChunksOfPart : loops.chunks;
  std::uint32_t sum = 0;
  Kokkos::parallel_reduce("kozero::bench::plain_loops",
                          Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>(0, parts), loops,
                          Kokkos::Sum<std::uint32_t>(sum));
}

class Streams {
 public:
  Streams(std::vector<KernelCase>& cases, OperandRings& rings) : cases_(cases), rings_(rings) {}

  struct Extent {
    std::int64_t rows, columns, calls;
  };

  /// `body` gets the Operands of a call. Elements: rows * columns.
  template <class Body>
  void add(const std::string& name, const Extent& extent, const Mix& mix, const Body& body) {
    const Operands operands{&rings_, extent.rows, extent.columns};
    const std::string shape =
        extent.rows == 1 ? fmt::format("{}", extent.columns) : fmt::format("{} x {}", extent.rows, extent.columns);
    const std::int64_t elements = extent.rows * extent.columns;
    cases_.push_back({name, shape, extent.calls, KernelCase::Measure::bytes,
                      static_cast<double>(mix.bytes() * elements), [=] { body(operands); }});
    cases_.back().plain = [rings = &rings_, mix, elements] { run(PlainLoops(*rings, mix, elements)); };
  }

 private:
  std::vector<KernelCase>& cases_;
  OperandRings& rings_;
};

template <class Scalar>
void add_embedding(Streams& streams, const KernelShapes& shapes) {
  const Streams::Extent extent{shapes.rows(), shapes.model.dim, shapes.micro_steps};
  const std::int64_t vocab = shapes.model.vocab;
  const Tokens tokens = random_tokens(extent.rows, vocab);
  streams.add("embedding forward", extent, {.read = sizeof(Scalar), .written = sizeof(Scalar)}, [=](const Operands& o) {
    kernels::embedding_forward(Device(), o.output<Scalar>(), Vector<const Token>(tokens),
                               o.rings->inputs.take<const Scalar>(vocab, o.columns));
  });
  streams.add("embedding backward", extent, {.read = sizeof(Scalar), .updated = kFloat}, [=](const Operands& o) {
    kernels::embedding_backward(Device(), o.rings->outputs.take<float>(vocab, o.columns), o.input<Scalar>(),
                                Vector<const Token>(tokens));
  });
}

template <class Scalar>
void add_norm(Streams& streams, const KernelShapes& shapes) {
  const Streams::Extent extent{shapes.rows(), shapes.model.dim, (2 * shapes.model.layers + 1) * shapes.micro_steps};
  const float eps = shapes.model.norm_eps;
  if (shapes.model.rotary) {
    streams.add("rmsnorm forward", extent, {.read = sizeof(Scalar), .written = sizeof(Scalar)}, [=](const Operands& o) {
      kernels::rmsnorm_forward(Device(), o.output<Scalar>(), o.row_output(), o.input<Scalar>(),
                               o.channel_input<Scalar>(), eps);
    });
    streams.add("rmsnorm backward", extent, {.read = 2 * sizeof(Scalar), .updated = sizeof(Scalar)},
                [](const Operands& o) {
                  kernels::rmsnorm_backward(Device(), o.output<Scalar>(), o.channel_output(), o.input<Scalar>(),
                                            o.input<Scalar>(), o.channel_input<Scalar>(), o.row_input(), o.reduction());
                });
    return;
  }
  const bool biased = shapes.biased();
  streams.add("layernorm forward", extent, {.read = sizeof(Scalar), .written = sizeof(Scalar)}, [=](const Operands& o) {
    const auto beta = biased ? o.channel_input<Scalar>() : Vector<const Scalar>();
    kernels::layernorm_forward(Device(), o.output<Scalar>(), o.row_output(), o.row_output(), o.input<Scalar>(),
                               o.channel_input<Scalar>(), beta, eps);
  });
  streams.add("layernorm backward", extent, {.read = 2 * sizeof(Scalar), .updated = sizeof(Scalar)},
              [=](const Operands& o) {
                const auto dbeta = biased ? o.channel_output() : Vector<float>();
                kernels::layernorm_backward(Device(), o.output<Scalar>(), o.channel_output(), dbeta, o.input<Scalar>(),
                                            o.input<Scalar>(), o.channel_input<Scalar>(), o.row_input(), o.row_input(),
                                            o.reduction());
              });
}

/// A GELU is timed with its matrix products in kernel_products.cpp.
template <class Scalar>
void add_activation(Streams& streams, const KernelShapes& shapes) {
  if (!shapes.gated()) return;
  const Streams::Extent extent{shapes.rows(), shapes.model.ffn, shapes.model.layers * shapes.micro_steps};
  streams.add("swiglu forward", extent, {.read = 2 * sizeof(Scalar), .written = sizeof(Scalar)},
              [](const Operands& o) { kernels::swiglu_forward(Device(), o.output<Scalar>(), o.input<Scalar>(2)); });
  streams.add("swiglu backward", extent, {.read = 3 * sizeof(Scalar), .written = 2 * sizeof(Scalar)},
              [](const Operands& o) {
                kernels::swiglu_backward(Device(), o.output<Scalar>(2), o.input<Scalar>(), o.input<Scalar>(2));
              });
}

template <class Scalar>
void add_rope(Streams& streams, const KernelShapes& shapes) {
  const model::Config& model = shapes.model;
  if (!model.rotary) return;
  const std::int64_t heads = model.heads + model.kv_heads;
  const std::int64_t rest = model.kv_heads * model.head_dim;
  const Streams::Extent extent{shapes.rows(), heads * model.head_dim, 2 * model.layers * shapes.micro_steps};
  streams.add("rope forward, backward", extent, {.updated = sizeof(Scalar)}, [=](const Operands& o) {
    kernels::rope_forward(Device(), o.rings->outputs.take<Scalar>(o.rows, o.columns + rest), heads, model.head_dim,
                          o.rings->inputs.take<const float>(model.seq, model.head_dim / 2),
                          o.rings->inputs.take<const float>(model.seq, model.head_dim / 2));
  });
}

template <class Scalar>
void add_sums(Streams& streams, const KernelShapes& shapes) {
  const model::Config& model = shapes.model;
  const std::int64_t calls = model.layers * shapes.micro_steps;
  if (model.dropout > 0.0F)
    streams.add(
        "residual", {shapes.rows(), model.dim, 2 * calls}, {.read = sizeof(Scalar), .updated = sizeof(Scalar)},
        [](const Operands& o) { kernels::residual_add(Device(), o.flat_output<Scalar>(), o.flat_input<Scalar>()); });
  const auto bias = [&](const std::string& name, std::int64_t columns, std::int64_t times) {
    streams.add("bias gradient " + name, {shapes.rows(), columns, times * calls}, {.read = sizeof(Scalar)},
                [](const Operands& o) {
                  kernels::bias_backward(Device(), o.channel_output(), o.input<Scalar>(), o.reduction());
                });
  };
  if (kBiasInProduct) return;
  if (shapes.qkv_biased()) bias("qkv", shapes.qkv_columns(), 1);
  if (!shapes.biased()) return;
  bias("attention out, mlp down", model.dim, 2);
  bias("mlp up", model.ffn, 1);
}

template <class Scalar>
void add_loss(Streams& streams, const KernelShapes& shapes) {
  const std::int64_t chunks = (shapes.rows() + shapes.head_rows() - 1) / shapes.head_rows();
  const std::int64_t vocab = shapes.model.vocab;
  const Streams::Extent extent{shapes.head_rows(), model::padded_vocabulary(shapes.model.vocab),
                               chunks * shapes.micro_steps};
  const Tokens targets = random_tokens(extent.rows, vocab);
  if (shapes.model.vocab_block > 0) {
    const Streams::Extent block{extent.rows, shapes.head_columns(), chunks * shapes.head_blocks() * shapes.micro_steps};
    const kernels::LogitBlock columns{0, std::min(shapes.model.vocab_block, vocab)};
    const auto softmax = [](const Operands& o) {
      return kernels::SoftmaxOfRows{o.row_output(), o.row_output(), o.row_output()};
    };
    streams.add("softmax of a block", block, {.read = sizeof(Scalar)}, [=](const Operands& o) {
      kernels::add_to_softmax(Device(), softmax(o), o.output<Scalar>(), Vector<const Token>(targets), columns, false);
    });
    streams.add("softmax gradient of a block", block, {.updated = sizeof(Scalar)}, [=](const Operands& o) {
      kernels::softmax_gradient(Device(), o.output<Scalar>(), softmax(o), Vector<const Token>(targets), columns, 1e-3F);
    });
    return;
  }
  streams.add("cross entropy", extent, {.updated = sizeof(Scalar)}, [=](const Operands& o) {
    const auto losses = o.row_output();
    kernels::cross_entropy(Device(), losses, o.output<Scalar>(), Vector<const Token>(targets), vocab, 1e-3F);
  });
}

/// A step's work on weights and gradients, in portions of one block.
template <class Scalar>
void add_update(Streams& streams, const KernelShapes& shapes) {
  const model::Config& model = shapes.model;
  const std::int64_t tables = model.vocab * model.dim * (model.tie_embeddings ? 1 : 2);
  const double portions = static_cast<double>(tables) / static_cast<double>(shapes.block_extent());
  const Streams::Extent extent{1, shapes.block_extent(), model.layers + std::llround(portions)};
  streams.add("gradient norm", extent, {.read = kFloat},
              [sum = std::make_shared<kernels::SumOfSquares>()](const Operands& o) {
                sum->clear();
                sum->add(o.flat_input<float>());
                static_cast<void>(sum->sum());
              });
  const std::int64_t rounded = has_master<Scalar> ? sizeof(Scalar) : 0;
  streams.add("adamw", extent, {.read = kFloat, .written = rounded, .updated = 3 * kFloat}, [](const Operands& o) {
    Vector<Scalar> stored;
    if constexpr (has_master<Scalar>) stored = o.flat_output<Scalar>();
    kernels::adamw_update(Device(), o.flat_output<float>(), stored, o.flat_output<float>(), o.flat_output<float>(),
                          o.flat_input<float>(), {.weight_decay = 0.01, .correction1 = 0.1, .correction2 = 0.001});
  });
}

void triad(Vector<float> a, Vector<const float> b, Vector<const float> c) {
  kernels::assign_elements(
      Device(), "kozero::bench::triad", a, kernels::inputs_of(b, c),
      KOKKOS_LAMBDA(float first, float second) { return first + 0.5F * second; });
}

}  // namespace

template <class Scalar>
void add_stream_cases(std::vector<KernelCase>& cases, const KernelShapes& shapes, OperandRings& rings) {
  Streams streams(cases, rings);
  add_embedding<Scalar>(streams, shapes);
  add_norm<Scalar>(streams, shapes);
  add_activation<Scalar>(streams, shapes);
  add_rope<Scalar>(streams, shapes);
  add_sums<Scalar>(streams, shapes);
  add_loss<Scalar>(streams, shapes);
  add_update<Scalar>(streams, shapes);
}

#define KOZERO_INSTANTIATE(T) \
  template void add_stream_cases<T>(std::vector<KernelCase>&, const KernelShapes&, OperandRings&);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

KernelCase stream_probe(OperandRings& rings) {
  std::vector<KernelCase> probe;
  constexpr std::int64_t kExtent = std::int64_t{1} << 23;  // three times 32 MiB
  Streams(probe, rings)
      .add("stream probe a = b + s c", {1, kExtent, 0}, {.read = 2 * kFloat, .written = kFloat},
           [](const Operands& o) { triad(o.flat_output<float>(), o.flat_input<float>(), o.flat_input<float>()); });
  probe.front().plain = {};
  return probe.front();
}

}  // namespace kozero::bench
