// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_onednn.cpp: the matrix product by oneDNN, with which bench kernels compares: its sgemm for floats without a
// bias, else its matmul primitive. sgemm copies blocks of both operands into an order of its own. At the shapes of a
// step it is never slower than the primitive, and for gradients with respect to weights and for the head's long sums it
// is 5 to 35 % faster (AVX-512, oneDNN 2.6).
// A primitive with its memory objects is made once per shape; a call only sets the data pointers. Operands are read in
// place, except that b is first copied into oneDNN's own block format if a row of some operand is a multiple of 4 KiB:
// columns then fall on few cache sets, and on some processors the plain product runs at half speed. oneDNN has no
// product of fp16 on a host; it rejects bf16 below AVX-512, and emulates it on AVX-512 without BF16 at a third of
// float's speed. Such operands are first copied to float; the result is rounded last.
#include <cstddef>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <kozero/core/precision.hpp>
#include "kernels/launch/fill.hpp"
#include "kernels/matmul/host/matmul_host.hpp"
#include "kernels/matmul/host/tile_product.hpp"
#include "kernels/matmul/product_tuning.hpp"

namespace kozero::kernels {
namespace {

using Memory = dnnl::memory;
using Type = Memory::data_type;
using Arguments = std::unordered_map<int, Memory>;

template <class T>
constexpr Type type_of() {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, Bfloat16>,
                "matmul: no oneDNN type is named for this one");
  return std::is_same_v<T, float> ? Type::f32 : Type::bf16;
}

/// The types of a product's arrays.
struct ProductTypes {
  Type out, in;
};

struct Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  ProductScratch packed;
  ProductScratch scratch;
  ProductScratch floats;
};

Library& library() {
  static Library library;
  return library;
}

/// The layout of op(x) with the given extents, x row-major.
Memory::desc layout(std::int64_t rows, std::int64_t columns, Op op, Type type) {
  const Memory::dims strides = op == Op::none ? Memory::dims{columns, 1} : Memory::dims{1, rows};
  return {Memory::dims{rows, columns}, type, strides};
}

bool collides_in_cache(std::int64_t row) { return row % (4096 / static_cast<std::int64_t>(sizeof(float))) == 0; }

/// Whether packing b saves time: cost k * n against m * k * n of the product, and a bound on the copy's size.
bool packs_b(const ProductShape& shape) {
  constexpr std::int64_t kFewestRows = 128;
  constexpr std::int64_t kLargestCopy = std::int64_t{1} << 24;
  const std::int64_t row_a = shape.op_a == Op::none ? shape.k : shape.m;
  const std::int64_t row_b = shape.op_b == Op::none ? shape.n : shape.k;
  return shape.m >= kFewestRows && shape.k * shape.n <= kLargestCopy &&
         (collides_in_cache(row_a) || collides_in_cache(row_b) || collides_in_cache(shape.n));
}

class Product {
 public:
  Product(const ProductShape& shape, ProductTypes types) : b_plain_(layout(shape.k, shape.n, shape.op_b, types.in)) {
    const dnnl::engine& engine = library().engine;
    const auto description = describe(shape, types);
    primitive_ = dnnl::matmul(description);
    b_used_ = description.weights_desc();
    scratch_ = description.scratchpad_desc().get_size();
    if (b_used_ != b_plain_) {
      pack_ = dnnl::reorder(dnnl::reorder::primitive_desc(engine, b_plain_, engine, b_used_));
      pack_arguments_ = {{DNNL_ARG_FROM, empty(b_plain_)}, {DNNL_ARG_TO, empty(b_used_)}};
    }
    arguments_ = {{DNNL_ARG_SRC, empty(description.src_desc())},
                  {DNNL_ARG_WEIGHTS, empty(b_used_)},
                  {DNNL_ARG_DST, empty(description.dst_desc())},
                  {DNNL_ARG_SCRATCHPAD, empty(description.scratchpad_desc())}};
    if (shape.has_bias) arguments_.emplace(DNNL_ARG_BIAS, empty(description.bias_desc()));
  }

  void run(void* c, const void* a, const void* b, const void* bias) {
    Library& shared = library();
    set(arguments_, DNNL_ARG_SRC, a);
    set(arguments_, DNNL_ARG_WEIGHTS, b_used_ == b_plain_ ? b : pack(b));
    set(arguments_, DNNL_ARG_DST, c);
    set(arguments_, DNNL_ARG_SCRATCHPAD, shared.scratch.at_least(static_cast<std::int64_t>(scratch_)));
    if (bias != nullptr) set(arguments_, DNNL_ARG_BIAS, bias);
    primitive_.execute(shared.stream, arguments_);
    shared.stream.wait();
  }

 private:
  static dnnl::matmul::primitive_desc describe(const ProductShape& shape, ProductTypes types) {
    const Memory::desc a = layout(shape.m, shape.k, shape.op_a, types.in);
    const Memory::desc b = packs_b(shape) ? Memory::desc({shape.k, shape.n}, types.in, Memory::format_tag::any)
                                          : layout(shape.k, shape.n, shape.op_b, types.in);
    const Memory::desc c = layout(shape.m, shape.n, Op::none, types.out);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (shape.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    return described<dnnl::matmul>(a, b, shape.has_bias ? layout(1, shape.n, Op::none, types.in) : Memory::desc(), c,
                                   attributes);
  }

  /// An empty description of the bias means none. oneDNN 2 describes an operation first, oneDNN 3 the primitive at
  /// once.
  template <class Matmul>
  static typename Matmul::primitive_desc described(const Memory::desc& a, const Memory::desc& b,
                                                   const Memory::desc& bias, const Memory::desc& c,
                                                   const dnnl::primitive_attr& attributes) {
    if constexpr (requires { typename Matmul::desc; }) {
      return {typename Matmul::desc(a, b, bias, c), attributes, library().engine};
    } else {
      return {library().engine, a, b, bias, c, attributes};
    }
  }

  static Memory empty(const Memory::desc& description) { return {description, library().engine, nullptr}; }

  /// oneDNN's memory objects have no const: the primitive only reads a, b and bias.
  static void set(Arguments& arguments, int name, const void* data) {
    arguments.at(name).set_data_handle(const_cast<void*>(data));
  }

  const void* pack(const void* b) {
    Library& shared = library();
    void* const packed = shared.packed.at_least(static_cast<std::int64_t>(b_used_.get_size()));
    set(pack_arguments_, DNNL_ARG_FROM, b);
    set(pack_arguments_, DNNL_ARG_TO, packed);
    pack_.execute(shared.stream, pack_arguments_);
    return packed;
  }

  Memory::desc b_plain_, b_used_;
  std::size_t scratch_ = 0;
  dnnl::matmul primitive_;
  dnnl::reorder pack_;
  Arguments arguments_, pack_arguments_;
};

template <class Out, class In>
Product& product(const ProductShape& shape) {
  library();  // made before the products, so that it outlives them
  static std::map<ProductShape, Product> products;
  return products.try_emplace(shape, shape, ProductTypes{type_of<Out>(), type_of<In>()}).first->second;
}

/// c = op(a) op(b), plus c if shape.accumulate.
void multiply_floats(const ProductShape& shape, float* c, const float* a, const float* b) {
  const bool plain_a = shape.op_a == Op::none;
  const bool plain_b = shape.op_b == Op::none;
  const dnnl_status_t status = dnnl_sgemm(plain_a ? 'N' : 'T', plain_b ? 'N' : 'T', shape.m, shape.n, shape.k, 1.0F, a,
                                          plain_a ? shape.k : shape.m, b, plain_b ? shape.n : shape.k,
                                          shape.accumulate ? 1.0F : 0.0F, c, shape.n);
  if (status != dnnl_success) throw Error(Failure::internal, "matmul: oneDNN's sgemm failed");
}

/// The library's own product, of float or bf16.
template <class Out, class In>
void multiply_as_they_are(const ProductShape& shape, Out* c, const In* a, const In* b, const In* bias) {
  if constexpr (std::is_same_v<In, float>) {
    if (!shape.has_bias) return multiply_floats(shape, c, a, b);
  }
  product<Out, In>(shape).run(c, a, b, bias);
}

/// Whether oneDNN has fast products of In. Products of bf16 are faster than those of float only on processors whose
/// tile unit for bf16 is used. Every instruction set with AVX-512 BF16 has the bits of avx512_core_bf16.
template <class In>
bool multiplies_as_they_are() {
  if (std::is_same_v<In, Float16>) return false;
  if (std::is_same_v<In, float>) return true;
  constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return tile_units<In>().front().pairs && (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

/// Copies of a product's arrays in float.
class FloatCopies {
 public:
  explicit FloatCopies(std::int64_t elements)
      : next_(
            reinterpret_cast<float*>(library().floats.at_least(elements * static_cast<std::int64_t>(sizeof(float))))) {}

  /// Room for `elements` floats.
  float* take(std::int64_t elements) { return std::exchange(next_, next_ + elements); }
  /// A copy in float; nullptr for nullptr.
  template <class T>
  float* of(const T* from, std::int64_t elements) {
    if (from == nullptr) return nullptr;
    float* const copy = take(elements);
    const auto extent = static_cast<std::size_t>(elements);
    convert(Device(), Vector<float>(copy, extent), Vector<const T>(from, extent));
    return copy;
  }

 private:
  float* next_;
};

template <class Out, class In>
void multiply_in_float(const ProductShape& shape, Out* c, const In* a, const In* b, const In* bias) {
  const std::int64_t of_c = std::is_same_v<Out, float> ? 0 : shape.m * shape.n;
  FloatCopies copies(shape.m * shape.k + shape.k * shape.n + shape.n + of_c);
  const float* const wide_a = copies.of(a, shape.m * shape.k);
  const float* const wide_b = copies.of(b, shape.k * shape.n);
  const float* const wide_bias = copies.of(bias, shape.n);
  if constexpr (std::is_same_v<Out, float>) {
    multiply_as_they_are(shape, c, wide_a, wide_b, wide_bias);
  } else {
    float* const wide_c = shape.accumulate ? copies.of(c, of_c) : copies.take(of_c);
    multiply_as_they_are(shape, wide_c, wide_a, wide_b, wide_bias);
    const auto extent = static_cast<std::size_t>(of_c);
    convert(Device(), Vector<Out>(c, extent), Vector<const float>(wide_c, extent));
  }
}

}  // namespace

template <class Out, class In>
void multiply_by_library(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                         const Epilogue<Out, In>& epilogue) {
  if (epilogue.addend != nullptr) {
    const auto extent = static_cast<std::size_t>(shape.m * shape.n);
    Kokkos::deep_copy(space, Vector<Out>(c, extent), Vector<const Out>(epilogue.addend, extent));
  }
  try {
    if constexpr (!std::is_same_v<In, Float16>) {
      if (multiplies_as_they_are<In>()) return multiply_as_they_are(shape, c, a, b, epilogue.bias);
    }
    if constexpr (!std::is_same_v<In, float>) multiply_in_float(shape, c, a, b, epilogue.bias);
  } catch (const dnnl::error& error) {
    throw Error(Failure::internal, std::string("matmul: oneDNN: ") + error.what());
  }
}

std::string compared_library() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + '.' + std::to_string(version.minor) + '.' +
         std::to_string(version.patch);
}

#define KOZERO_INSTANTIATE(Out, In)                                                                          \
  template void multiply_by_library<Out, In>(const Device&, const ProductShape&, Out*, const In*, const In*, \
                                             const Epilogue<Out, In>&);
KOZERO_FOR_PRODUCTS(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
