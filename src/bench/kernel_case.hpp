// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// kernel_case.hpp: the kernels of a training step at the shapes of one network, ready to be timed, with uncached
// operands.
//   operations  of a product 2 M N K; of causal attention (half the square) 2 B H T^2 D forward, 5 B H T^2 D backward
//   bytes       every array that is read or written once, an array updated in place twice; not counted are second reads
//               by a kernel, and reads of a cache before an overwrite
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

/// Memory for operands that are in no cache, as in a training step. A ring is one large array, of inputs (noise in
/// [0, 1)) or of outputs. It gives out memory from front to end and then from the front again, so that many other
/// operands have passed through the caches before memory is reused.
class OperandRing {
 public:
  OperandRing(MemoryLedger& ledger, const std::string& label, std::int64_t bytes);

  /// The next `extent` elements. Throws Error(internal) if a call's operands would overlap.
  template <class T>
  Vector<T> take(std::int64_t extent) {
    return Vector<T>(reinterpret_cast<T*>(next(extent * static_cast<std::int64_t>(sizeof(T)))),
                     static_cast<std::size_t>(extent));
  }
  template <class T>
  Matrix<T> take(std::int64_t rows, std::int64_t columns) {
    return as_matrix(take<T>(rows * columns), rows, columns);
  }
  /// Memory given out before may be given out again.
  void begin_call() { in_call_ = 0; }

 private:
  std::byte* next(std::int64_t bytes);

  Vector<std::byte> memory_;
  std::int64_t at_ = 0;
  std::int64_t in_call_ = 0;  ///< bytes given out or skipped since begin_call()
};

struct OperandRings {
  /// `call_bytes`: most bytes per call from either ring.
  OperandRings(MemoryLedger& ledger, std::int64_t call_bytes);

  OperandRing inputs;
  OperandRing outputs;
};

struct KernelCase {
  enum class Measure { operations, bytes };

  std::string name;        ///< "qkv forward"
  std::string shape;       ///< "1024 x 2304 x 768"
  std::int64_t calls = 1;  ///< per step
  Measure measure = Measure::bytes;
  double work = 0.0;           ///< operations or bytes per call
  std::function<void()> call;  ///< one call, with the rings' next operands; does not fence
  bool in_library = false;     ///< the library can compute it too
  /// For Measure::bytes: plain loops that read, write and update as many bytes.
  std::function<void()> plain = {};
};

/// The network and the micro-batch of the cases.
struct KernelShapes {
  model::Config model;
  std::int64_t batch = 1;  ///< sequences of a micro-step on this rank
  std::int64_t micro_steps = 1;

  [[nodiscard]] std::int64_t rows() const { return batch * model.seq; }
  [[nodiscard]] bool gated() const { return model.rotary; }
  /// Whether all projections have a bias, as GPT-2's, and whether q, k and v have one.
  [[nodiscard]] bool biased() const { return !model.rotary && model.bias; }
  [[nodiscard]] bool qkv_biased() const { return biased() || model.qkv_bias; }
  [[nodiscard]] std::int64_t qkv_columns() const { return (model.heads + 2 * model.kv_heads) * model.head_dim; }
  [[nodiscard]] std::int64_t up_columns() const { return gated() ? 2 * model.ffn : model.ffn; }
  /// Rows of the head per call.
  [[nodiscard]] std::int64_t head_rows() const;
  /// Padded columns of one product with the vocabulary, or with a block of it (whose forward product runs twice).
  [[nodiscard]] std::int64_t head_columns() const;
  [[nodiscard]] std::int64_t head_blocks() const;
  /// Weights of a block, which the optimizer's cases update.
  [[nodiscard]] std::int64_t block_extent() const;
  /// Most bytes per call from either ring.
  [[nodiscard]] std::int64_t largest_call_bytes() const;
};

/// Matrix products, forward and both backward ones, and attention.
template <class Scalar>
void add_product_cases(std::vector<KernelCase>& cases, const KernelShapes& shapes, OperandRings& rings);

/// Whether the gradient of a bias is timed within its matrix product, which GPU back ends fuse.
inline constexpr bool kBiasInProduct = !kHostIsDevice;

/// All other kernels, which are limited by memory.
template <class Scalar>
void add_stream_cases(std::vector<KernelCase>& cases, const KernelShapes& shapes, OperandRings& rings);

/// Peak rate: products of matrices in the first-level caches. Does nothing if the library computes products.
template <class Scalar>
KernelCase product_probe();

/// Peak bandwidth: a = b + s c over arrays larger than any cache.
KernelCase stream_probe(OperandRings& rings);

}  // namespace kozero::bench
