// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include <kozero/io/progress.hpp>
#include <kozero/io/readable.hpp>

namespace kozero::io {

namespace {
constexpr double kMemoryOfMean = 0.9;
constexpr std::int64_t kBarWidth = 16;
constexpr auto kRefresh = std::chrono::milliseconds(100);
}  // namespace

std::string Progress::figures(const ProgressStep& now) const {
  const std::string scale = now.loss_scale ? fmt::format("  scale {:.0f}", *now.loss_scale) : "";
  return fmt::format("{}/{}  loss {:.4f}{}  {} tokens/s  {} left  {}", now.step, total_steps_, now.loss, scale,
                     readable_count(now.tokens_per_s),
                     readable_seconds(static_cast<double>(total_steps_ - now.step) * smooth_step_s_),
                     readable_bytes(now.memory));
}

std::string Progress::bar(const ProgressStep& now) const {
  const auto done =
      std::clamp<std::int64_t>(kBarWidth * now.step / std::max<std::int64_t>(1, total_steps_), 0, kBarWidth);
  std::string bar(static_cast<std::size_t>(done), '=');
  if (done < kBarWidth) bar += '>';
  bar.resize(kBarWidth, ' ');
  return "[" + bar + "]  " + figures(now);
}

void Progress::update(const ProgressStep& now) {
  smooth_step_s_ =
      smooth_step_s_ == 0.0 ? now.step_s : kMemoryOfMean * smooth_step_s_ + (1.0 - kMemoryOfMean) * now.step_s;
  const bool last = now.step == total_steps_;
  const bool wanted = now.step == 1 || last || (every_ > 0 && now.step % every_ == 0);
  if (!log_.interactive()) {
    if (wanted) log_.say("step " + figures(now));
    return;
  }
  if (wanted) log_.note("step " + figures(now));
  const auto clock = std::chrono::steady_clock::now();
  if (last) {
    log_.status("");
  } else if (clock - shown_ >= kRefresh) {
    log_.status(bar(now));
    shown_ = clock;
  }
}

}  // namespace kozero::io
