// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/train/loss_scaler.hpp>

namespace kozero::train {
namespace {

constexpr double kLeast = 1.0;
constexpr double kMost = 0x1p24;

}  // namespace

void LossScaler::count_good_step() {
  if (!is_dynamic() || ++good_steps_ < window_) return;
  good_steps_ = 0;
  scale_ = std::min(2.0 * scale_, kMost);
}

bool LossScaler::back_off() {
  if (!is_dynamic() || scale_ <= kLeast) return false;
  good_steps_ = 0;
  scale_ = scale_ / 2.0;
  return true;
}

std::optional<io::LossScale> LossScaler::state() const {
  if (!is_dynamic()) return std::nullopt;
  return io::LossScale{scale_, good_steps_};
}

void LossScaler::restore(const std::optional<io::LossScale>& saved) {
  if (!is_dynamic() || !saved) return;
  scale_ = saved->scale;
  good_steps_ = saved->good_steps;
}

}  // namespace kozero::train
