// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// loss_scaler.hpp: the factor on the loss's gradient that keeps the gradients of activations in fp16's range.
//   dynamic: from 2^16 on; halved by an overflow, doubled after `window` good steps in a row; from 1 to 2^24
//   fixed:   what the deck says; 1 where nothing is stored in fp16
// It is a power of two, so that scaling and its undoing change no bit of what neither overflows nor underflows. Every
// rank has the same one, since the gradient norm that tells is global.      Micikevicius et al. 2018, arXiv:1710.03740.
#pragma once
#include <cstdint>
#include <optional>

#include <kozero/io/manifest.hpp>

namespace kozero::train {

class LossScaler {
 public:
  /// Scales nothing.
  LossScaler() = default;
  static LossScaler fixed(double scale) { return {scale, 0}; }
  static LossScaler dynamic(std::int64_t window, double first = 0x1p16) { return {first, window}; }

  [[nodiscard]] double scale() const { return scale_; }

  /// After a step whose gradients were finite.
  void count_good_step();
  /// After one whose were not, though the loss was: lowers the scale for the next,
  /// or returns false where it may not fall.
  [[nodiscard]] bool back_off();

  /// What a checkpoint keeps of it; nothing of a fixed one.
  [[nodiscard]] std::optional<io::LossScale> state() const;
  /// Goes on from there; a fixed one, and one without anything saved, stays as it is.
  void restore(const std::optional<io::LossScale>& saved);

 private:
  LossScaler(double scale, std::int64_t window) : scale_(scale), window_(window) {}
  [[nodiscard]] bool is_dynamic() const { return window_ > 0; }

  double scale_ = 1.0;
  std::int64_t window_ = 0;  // 0: fixed
  std::int64_t good_steps_ = 0;
};

}  // namespace kozero::train
