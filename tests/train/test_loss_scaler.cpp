// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_loss_scaler.cpp: when the scale changes, its limits, and its state in a checkpoint.
#include <catch2/catch_test_macros.hpp>

#include <kozero/train/engine.hpp>

using kozero::train::LossScaler;

namespace {

void count_good_steps(LossScaler& scaler, int steps) {
  for (int i = 0; i < steps; ++i) scaler.count_good_step();
}

}  // namespace

TEST_CASE("a dynamic scale doubles after a window of good steps in a row, and halves at each overflow") {
  LossScaler scaler = LossScaler::dynamic(3);
  CHECK(scaler.scale() == 65536.0);
  count_good_steps(scaler, 2);
  CHECK(scaler.scale() == 65536.0);
  CHECK(scaler.back_off());
  CHECK(scaler.scale() == 32768.0);
  count_good_steps(scaler, 2);
  CHECK(scaler.scale() == 32768.0);  // the two good steps before the overflow do not count
  count_good_steps(scaler, 1);
  CHECK(scaler.scale() == 65536.0);
  count_good_steps(scaler, 2);
  CHECK(scaler.scale() == 65536.0);  // the good steps that doubled the scale do not count again
}

TEST_CASE("a dynamic scale stays between 1 and 2^24") {
  LossScaler low = LossScaler::dynamic(1, 4.0);
  CHECK(low.back_off());
  CHECK(low.back_off());
  CHECK(low.scale() == 1.0);
  CHECK_FALSE(low.back_off());
  CHECK(low.scale() == 1.0);
  LossScaler high = LossScaler::dynamic(1, 0x1p23);
  count_good_steps(high, 3);
  CHECK(high.scale() == 0x1p24);
}

TEST_CASE("a fixed scale does not move, and no checkpoint keeps it") {
  LossScaler none;
  LossScaler fixed = LossScaler::fixed(1024.0);
  CHECK(none.scale() == 1.0);
  CHECK_FALSE(none.back_off());
  CHECK_FALSE(fixed.back_off());
  count_good_steps(fixed, 5000);
  CHECK(fixed.scale() == 1024.0);
  CHECK_FALSE(none.state().has_value());
  CHECK_FALSE(fixed.state().has_value());
  fixed.restore(kozero::io::LossScale{8.0, 1});
  CHECK(fixed.scale() == 1024.0);
}

TEST_CASE("a dynamic scale goes on where it was saved, and from its beginning where nothing was") {
  LossScaler saved = LossScaler::dynamic(3);
  CHECK(saved.back_off());
  count_good_steps(saved, 2);
  LossScaler restored = LossScaler::dynamic(3);
  restored.restore(saved.state());
  CHECK(restored.state() == saved.state());
  count_good_steps(restored, 1);
  CHECK(restored.scale() == 65536.0);
  restored.restore(std::nullopt);
  CHECK(restored.scale() == 65536.0);
}
