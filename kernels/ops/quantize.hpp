// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// quantize.hpp: blocks of 64 weights in 8 or 4 bits each, with one float for the block.
//   words of a block = 64 codes of `bits` bits, the first in the lowest bits of the first word | the block's scale
//   int8: scale = largest |x| / 127     x = scale code, code from -127 to 127          |error| <= largest |x| / 254
//   nf4:  scale = largest |x|           x = scale kNormalFloat[code]                   |error| <= 0.152 largest |x|
//   raw:  64 floats, no scale
// NF4's values are the quantiles of a normal distribution, as bitsandbytes has them, with its block of 64 and its
// nearest value; the error's bound is half the distance between the two lowest. Dettmers et al. 2023, "QLoRA",
// arXiv:2305.14314. Encoding runs on the host. Decoding runs on `space` and returns without fencing.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"

namespace kozero::kernels {

inline constexpr std::int64_t kBlockWeights = 64;

/// What a block of weights is stored as.
enum class BlockCode { raw, int8, nf4 };

/// 32-bit words of a block.
constexpr std::int64_t words_of_block(BlockCode code) {
  return code == BlockCode::raw ? kBlockWeights : kBlockWeights * (code == BlockCode::int8 ? 8 : 4) / 32 + 1;
}

inline constexpr std::array<float, 16> kNormalFloat = {-1.0F,
                                                       -0.6961928009986877F,
                                                       -0.5250730514526367F,
                                                       -0.39491748809814453F,
                                                       -0.28444138169288635F,
                                                       -0.18477343022823334F,
                                                       -0.09105003625154495F,
                                                       0.0F,
                                                       0.07958029955625534F,
                                                       0.16093020141124725F,
                                                       0.24611230194568634F,
                                                       0.33791524171829224F,
                                                       0.44070982933044434F,
                                                       0.5626170039176941F,
                                                       0.7229568362236023F,
                                                       1.0F};

/// The code whose value is nearest to x in [-1, 1].
inline std::uint32_t normal_float_code(float x) {
  std::uint32_t code = 0;
  while (code < 15 && x > 0.5F * (kNormalFloat[code] + kNormalFloat[code + 1])) ++code;
  return code;
}

inline Kokkos::Array<float, 16> normal_float_values() {
  Kokkos::Array<float, 16> values{};
  std::ranges::copy(kNormalFloat, values.data());
  return values;
}

/// Encodes 64 weights.
inline void encode_block(BlockCode code, const float* weights, std::uint32_t* words) {
  if (code == BlockCode::raw) {
    for (std::int64_t i = 0; i < kBlockWeights; ++i) words[i] = std::bit_cast<std::uint32_t>(weights[i]);
    return;
  }
  float largest = 0.0F;
  for (std::int64_t i = 0; i < kBlockWeights; ++i) largest = std::max(largest, std::abs(weights[i]));
  const bool in_8_bits = code == BlockCode::int8;
  const float scale = in_8_bits ? largest / 127.0F : largest;
  const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
  const std::int64_t per_word = in_8_bits ? 4 : 8;
  const std::int64_t num_words = kBlockWeights / per_word;
  std::fill_n(words, num_words, 0U);
  for (std::int64_t i = 0; i < kBlockWeights; ++i) {
    const float x = weights[i] * inverse;
    const std::uint32_t bits =
        in_8_bits
            ? static_cast<std::uint32_t>(static_cast<std::int32_t>(std::clamp(std::nearbyint(x), -127.0F, 127.0F))) &
                  0xFFU
            : normal_float_code(x);
    words[i / per_word] |= bits << (i % per_word * (32 / per_word));
  }
  words[num_words] = std::bit_cast<std::uint32_t>(scale);
}

/// Decodes blocks of one kind, each `kWords` words.
template <BlockCode kCode>
struct BlockDecoder {
  static constexpr std::int64_t kWords = words_of_block(kCode);
  Kokkos::Array<float, 16> values;  // of NF4

  /// A code's value without the scale: code `i` of the word.
  KOKKOS_INLINE_FUNCTION float value_of(std::uint32_t word, int i) const {
    if constexpr (kCode == BlockCode::raw) return Kokkos::bit_cast<float>(word);
    if constexpr (kCode == BlockCode::int8)
      return static_cast<float>(static_cast<std::int8_t>(word >> (8 * i) & 0xFFU));
    return values[word >> (4 * i) & 0xFU];
  }

  static constexpr int kPerWord = kCode == BlockCode::raw ? 1 : kCode == BlockCode::int8 ? 4 : 8;
  KOKKOS_INLINE_FUNCTION static float scale_of(const std::uint32_t* block) {
    return kCode == BlockCode::raw ? 1.0F : Kokkos::bit_cast<float>(block[kWords - 1]);
  }

  /// All weights of a block, on one host thread.
  template <class T>
  void decode(const std::uint32_t* block, T* weights) const {
    float unscaled[kBlockWeights];
    for (int word = 0; word < kBlockWeights / kPerWord; ++word) {
      for (int i = 0; i < kPerWord; ++i) unscaled[kPerWord * word + i] = value_of(block[word], i);
    }
    const float scale = scale_of(block);
    store_run(weights, kBlockWeights, [=](std::int64_t i) { return scale * unscaled[i]; });
  }
};

template <BlockCode kCode, class Space, class T>
static void decode_blocks_of(const Space& space, Vector<T> weights, Vector<const std::uint32_t> words) {
  const BlockDecoder<kCode> decoder{normal_float_values()};
  const std::int64_t blocks = static_cast<std::int64_t>(weights.extent(0)) / kBlockWeights;
  constexpr std::int64_t kWords = BlockDecoder<kCode>::kWords;
  require(static_cast<std::int64_t>(weights.extent(0)) == blocks * kBlockWeights &&
              static_cast<std::int64_t>(words.extent(0)) == blocks * kWords,
          "decode_blocks: the words are not those of the weights");
  if (blocks == 0) return;
  if constexpr (runs_on_host<Space>) {
    Kokkos::parallel_for(
        "kozero::decode_blocks", Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>(space, 0, blocks),
        [=](const std::int64_t b) { decoder.decode(words.data() + b * kWords, weights.data() + b * kBlockWeights); });
  } else {
    for_each_element(
        space, "kozero::decode_blocks", blocks * kBlockWeights, KOKKOS_LAMBDA(std::int64_t i) {
          const std::uint32_t* const block = words.data() + i / kBlockWeights * kWords;
          const auto within = static_cast<int>(i % kBlockWeights);
          constexpr int kPerWord = BlockDecoder<kCode>::kPerWord;
          weights(i) = static_cast<T>(BlockDecoder<kCode>::scale_of(block) *
                                      decoder.value_of(block[within / kPerWord], within % kPerWord));
        });
  }
}

/// weights(64 b + i) = weight i of block b, for blocks that follow each other in `words`.
template <class Space, class T>
void decode_blocks(const Space& space, Vector<T> weights, Vector<const std::uint32_t> words, BlockCode code) {
  if (code == BlockCode::raw) return decode_blocks_of<BlockCode::raw>(space, weights, words);
  if (code == BlockCode::int8) return decode_blocks_of<BlockCode::int8>(space, weights, words);
  decode_blocks_of<BlockCode::nf4>(space, weights, words);
}

}  // namespace kozero::kernels
