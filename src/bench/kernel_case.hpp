// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// kernel_case.hpp: the kernels of a training step at the shapes of one network, ready to be timed, with uncached
// operands.
//   operations  of a product 2 M N K; of causal attention 2 B H T^2 D forward, 5 B H T^2 D backward
//   bytes       every array that is read or written once, an array updated in place twice
// Operands come from two rings of memory, so that no cache holds them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/model/config.hpp>
#include <kozero/model/parameter_views.hpp>

namespace kozero::bench {

// Operands for kernels that are to be timed as a step meets them: not in any cache.
// Two large arrays, one of inputs (noise in [0, 1)) and one of outputs, are handed out in turn from front to end and
// then from the front again, so that a call finds its operands where many others have passed since.

class OperandRing {
 public:
  OperandRing(MemoryLedger& ledger, const std::string& label, std::int64_t bytes);

  /// The next `extent` elements. Throws Error(internal) where a call's operands would overlap.
  template <class T>
  Vector<T> take(std::int64_t extent) {
    return Vector<T>(reinterpret_cast<T*>(next(extent * static_cast<std::int64_t>(sizeof(T)))),
                     static_cast<std::size_t>(extent));
  }
  template <class T>
  Matrix<T> take(std::int64_t rows, std::int64_t columns) {
    return as_matrix(take<T>(rows * columns), rows, columns);
  }
  /// What was handed out before may be handed out again.
  void begin_call() { in_call_ = 0; }

 private:
  std::byte* next(std::int64_t bytes);

  Vector<std::byte> memory_;
  std::int64_t at_ = 0;
  std::int64_t in_call_ = 0;  ///< bytes handed out or passed over since begin_call()
};

struct OperandRings {
  /// `call_bytes`: the most that one call takes of either.
  OperandRings(MemoryLedger& ledger, std::int64_t call_bytes);

  OperandRing inputs;
  OperandRing outputs;
};

// The kernels of a training step, each at the shapes of one network, ready to be timed.
//   operations  of a product 2 M N K; of causal attention (half the square) 2 B H T^2 D forward, 5 B H T^2 D backward
//   bytes       every array that goes in or comes out once, one that is updated in place twice; what a kernel reads a
//               second time, and what a cache reads before it is overwritten, are not counted

struct KernelCase {
  enum class Measure { operations, bytes };

  std::string name;        ///< "qkv forward"
  std::string shape;       ///< "1024 x 2304 x 768"
  std::int64_t calls = 1;  ///< in a step
  Measure measure = Measure::bytes;
  double work = 0.0;           ///< operations or bytes of a call
  std::function<void()> call;  ///< once, with the rings' next operands; returns without fencing
  bool in_library = false;     ///< the library can do it as well
  /// Of bytes: plain loops that read, write and update as many.
  std::function<void()> plain = {};
};

/// What the cases are made of.
struct KernelShapes {
  model::Config model;
  std::int64_t batch = 1;  ///< sequences of a micro-step on this rank
  std::int64_t micro_steps = 1;

  [[nodiscard]] std::int64_t rows() const { return batch * model.seq; }
  [[nodiscard]] bool gated() const { return model.rotary; }
  /// Whether q, k and v have a bias; that of the other projections is GPT-2's.
  [[nodiscard]] bool qkv_biased() const { return !model.rotary || model.qkv_bias; }
  [[nodiscard]] std::int64_t qkv_columns() const { return (model.heads + 2 * model.kv_heads) * model.head_dim; }
  [[nodiscard]] std::int64_t up_columns() const { return gated() ? 2 * model.ffn : model.ffn; }
  /// Rows of the head that are worked on at once.
  [[nodiscard]] std::int64_t head_rows() const;
  /// Of one product with the vocabulary, or a block of it (whose forward product runs twice as often), padded.
  [[nodiscard]] std::int64_t head_columns() const;
  [[nodiscard]] std::int64_t head_blocks() const;
  /// Weights of a block, which the optimizer's cases update.
  [[nodiscard]] std::int64_t block_extent() const;
  /// The most that one call takes of either ring.
  [[nodiscard]] std::int64_t largest_call_bytes() const;
};

/// Matrix products, forward and both backward ones, and attention.
template <class Scalar>
void add_product_cases(std::vector<KernelCase>& cases, const KernelShapes& shapes, OperandRings& rings);

/// Whether the gradient of a bias is timed with the product beside it, of which it is a part where a back end has that.
inline constexpr bool kBiasInProduct = !kHostIsDevice;

/// Everything else: what moves more bytes than it computes.
template <class Scalar>
void add_stream_cases(std::vector<KernelCase>& cases, const KernelShapes& shapes, OperandRings& rings);

/// Products of what the first-level caches hold: what the machine can give. Does nothing where the library multiplies.
template <class Scalar>
KernelCase product_probe();

/// a = b + s c over arrays larger than any cache: what memory can give.
KernelCase stream_probe(OperandRings& rings);

}  // namespace kozero::bench
