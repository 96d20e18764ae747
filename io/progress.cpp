// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <kozero/io/progress.hpp>
#include <kozero/io/readable.hpp>

namespace kozero::io {

namespace {
constexpr double kMemoryOfMean = 0.9;
constexpr std::int64_t kBarWidth = 16;
constexpr auto kRefresh = std::chrono::milliseconds(100);
}  // namespace

void Progress::add(const ProgressStep& now) {
  sums_.tokens += now.tokens_per_s * now.step_s;
  sums_.seconds += now.step_s;
  if (!std::isfinite(now.loss)) return;
  sums_.loss += now.loss;
  ++sums_.losses;
}

std::string Progress::figures(const ProgressStep& now) const {
  const std::string scale = now.loss_scale ? fmt::format("  scale {:.0f}", *now.loss_scale) : "";
  const double loss = sums_.losses > 0 ? sums_.loss / static_cast<double>(sums_.losses) : now.loss;
  const double rate = sums_.seconds > 0.0 ? sums_.tokens / sums_.seconds : now.tokens_per_s;
  return fmt::format("{}/{}  loss {:.4f}{}  {} tokens/s  {} left  {} resident", now.step, total_steps_, loss, scale,
                     readable_count(rate),
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
  add(now);
  const bool last = now.step == total_steps_;
  const bool wanted = now.step == 1 || last || (every_ > 0 && now.step % every_ == 0);
  if (wanted) {
    const std::string line = "step " + figures(now);
    log_.interactive() ? log_.note(line) : log_.say(line);
  }
  if (!log_.interactive()) {
    if (wanted) sums_ = {};
    return;
  }
  const auto clock = std::chrono::steady_clock::now();
  if (last) {
    log_.status("");
  } else if (clock - shown_ >= kRefresh) {
    log_.status(bar(now));
    shown_ = clock;
  }
  if (wanted) sums_ = {};
}

}  // namespace kozero::io
