// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// block.cpp: the threads of a block in an order given by the seed, its barriers and shuffles; the blocks of a launch.
#include "block.hpp"

#include <algorithm>
#include <ctime>
#include <numeric>

namespace kozero::gpu_emulator {
namespace {

constexpr std::uint32_t kNoLimit = ~0U;
/// The most instructions of a fragment in a row while others could run, since it may wait for one of them.
constexpr std::uint32_t kMostInARow = 20'000;

std::uint32_t rounded_up(std::uint32_t n, std::uint32_t to) { return (n + to - 1) / to * to; }

/// Kokkos 4.7, Kokkos_Cuda_ReduceScan.hpp, CudaReductionsFunctor<F, false, false>: scalar_intra_warp_reduction with a
/// width below 32. Lanes of warp 0 outside the first group load the first group's sum, which lane 0 may be storing,
/// into an element that nothing reads (docs/gpu_emulator.md).
bool explained(const std::string& kind, const Code& code, const Op& op, std::uint32_t thread) {
  const std::string& text = code.texts[op.text];
  return kind == "race" && code.name.find("ParallelReduce") != std::string::npos &&
         code.name.find("RangePolicy") != std::string::npos &&
         (text.starts_with("ld.shared") ? thread > 0 && thread < kLanes : text.starts_with("st.shared") && thread == 0);
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

void finding_at(const Warp& warp, int lane, const char* kind, const std::string& text) {
  const Block& block = *warp.block;
  const Code& code = *block.code;
  const Op& op = code.ops[warp.at];
  const std::string& line = code.lines[warp.at];
  if (explained(kind, code, op, warp.first_thread + static_cast<std::uint32_t>(lane))) return;
  finding(kind, code.name + std::to_string(warp.at),
          block.launch->label + ": thread " + std::to_string(warp.first_thread + static_cast<std::uint32_t>(lane)) +
              " of block (" + std::to_string(block.x) + ", " + std::to_string(block.y) + ", " +
              std::to_string(block.z) + ") " + text + "; " + code.texts[op.text] + (line.empty() ? "" : " at " + line));
}

BlockRun::BlockRun(const Launch& launch) : launch_(launch), code_(*launch.code) {
  const auto [x, y, z] = launch.block;
  block_.launch = &launch;
  block_.code = &code_;
  block_.threads = x * y * z;
  block_.parameters = launch.parameters.data();
  const std::uint32_t fixed = rounded_up(code_.shared_bytes, 16);
  block_.shared_bytes = fixed + launch.dynamic_shared;
  block_.dynamic_bytes = launch.dynamic_shared;
  shared_.resize(block_.shared_bytes + 16);
  shared_fresh_.assign(block_.shared_bytes + 16, kAddressable);
  shared_state_ = shared_fresh_;
  shared_cells_.resize(block_.shared_bytes / 2 + 8);
  block_.shared = shared_.data();
  block_.shared_state = shared_state_.data();
  block_.shared_cells = shared_cells_.data();

  warps_.resize((block_.threads + kLanes - 1) / kLanes);
  const std::size_t per_warp = (code_.register_bytes + 63) / 64 * 64;
  registers_.resize(per_warp * warps_.size() + 64);
  local_.resize(static_cast<std::size_t>(code_.local_bytes) * kLanes * warps_.size());
  auto* const first =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(registers_.data()) + 63) / 64 * 64);
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    Warp& warp = warps_[i];
    warp.block = &block_;
    warp.registers = first + i * per_warp;
    warp.local = local_.data() + i * code_.local_bytes * kLanes;
    warp.first_thread = static_cast<std::uint32_t>(i * kLanes);
    for (const Code::Constant& constant : code_.constants) {
      for (int lane = 0; lane < (constant.bytes == 0 ? 1 : kLanes); ++lane) {
        const std::uint32_t bytes = constant.bytes == 0 ? 4 : constant.bytes;
        std::memcpy(warp.registers + constant.place + static_cast<std::size_t>(lane) * bytes, &constant.value, bytes);
      }
    }
  }
}

void BlockRun::set_special(const std::string& name, std::uint32_t place, Warp& warp) {
  const auto [bx, by, bz] = launch_.block;
  const auto [gx, gy, gz] = launch_.grid;
  auto* lanes = warp.lanes<std::uint32_t>(place);
  const auto set = [&](auto value) {
    for (std::uint32_t i = 0; i < kLanes; ++i) lanes[i] = static_cast<std::uint32_t>(value(warp.first_thread + i));
  };
  const auto all = [&](std::uint32_t value) { set([value](std::uint32_t) { return value; }); };
  if (name == "%tid.x")
    set([&](std::uint32_t t) { return t % bx; });
  else if (name == "%tid.y")
    set([&](std::uint32_t t) { return t / bx % by; });
  else if (name == "%tid.z")
    set([&](std::uint32_t t) { return t / bx / by; });
  else if (name == "%ntid.x")
    all(bx);
  else if (name == "%ntid.y")
    all(by);
  else if (name == "%ntid.z")
    all(bz);
  else if (name == "%ctaid.x")
    all(block_.x);
  else if (name == "%ctaid.y")
    all(block_.y);
  else if (name == "%ctaid.z")
    all(block_.z);
  else if (name == "%nctaid.x")
    all(gx);
  else if (name == "%nctaid.y")
    all(gy);
  else if (name == "%nctaid.z")
    all(gz);
  else if (name == "%laneid")
    set([](std::uint32_t t) { return t % kLanes; });
  else if (name == "%warpid")
    set([](std::uint32_t t) { return t / kLanes; });
  else if (name == "%lanemask_lt")
    set([](std::uint32_t t) { return (1U << t % kLanes) - 1; });
  else
    stop("the emulator has no special register " + name + ", which " + code_.name + " reads");
}

void BlockRun::begin(Random& random) {
  std::copy(shared_fresh_.begin(), shared_fresh_.end(), shared_state_.begin());
  block_.time = 1;
  block_.barrier_at = 0;
  block_.acquired = 0;
  block_.fenced = false;
  std::fill(std::begin(barriers_), std::end(barriers_), Barrier{});
  for (Warp& warp : warps_) {
    const std::uint32_t left = block_.threads - warp.first_thread;
    const Mask present = left >= kLanes ? kAllLanes : (Mask{1} << left) - 1;
    warp.exited = ~present;
    warp.synced = warp.shuffled = {};
    warp.fragments.assign(1, {present, 0, Fragment::State::runs});
    if (options().seed != 0 && random.below(2) == 0) {  // the warp begins in two parts
      const Mask part = static_cast<Mask>(mixed(random.below(~0U))) & present;
      warp.fragments.assign({{part, 0, Fragment::State::runs}, {present & ~part, 0, Fragment::State::runs}});
    }
    for (const auto& [name, place] : code_.specials) set_special(name, place, warp);
  }
}

void BlockRun::run(std::uint32_t x, std::uint32_t y, std::uint32_t z, std::uint32_t number, Random& random) {
  block_.x = x;
  block_.y = y;
  block_.z = z;
  block_.number = number;
  begin(random);
  for (;;) {
    bool ran = false;
    const std::size_t first = options().seed == 0 ? 0 : random.below(static_cast<std::uint32_t>(warps_.size()));
    for (std::size_t i = 0; i < warps_.size(); ++i) ran |= run_warp(warps_[(first + i) % warps_.size()], random);
    if (alive() == 0) return;
    if (!ran) report_stuck();
  }
}

std::uint32_t BlockRun::alive() const {
  std::uint32_t threads = 0;
  for (const Warp& warp : warps_) threads += static_cast<std::uint32_t>(std::popcount(~warp.exited));
  return threads;
}

/// Runs the warp until all lanes have ended or wait. Returns false if no lane could run.
bool BlockRun::run_warp(Warp& warp, Random& random) {
  bool ran = false;
  std::uint32_t limit = kNoLimit;
  for (std::size_t chosen = choose(warp, random, limit); chosen < warp.fragments.size();
       chosen = choose(warp, random, limit)) {
    execute(warp, chosen, limit);
    ran = true;
  }
  return ran;
}

/// The fragment to run, and the instruction at which it may meet the next one. Merges fragments at one instruction.
std::size_t BlockRun::choose(Warp& warp, Random& random, std::uint32_t& limit) {
  auto& all = warp.fragments;
  std::erase_if(all, [](const Fragment& f) { return f.lanes == 0; });
  limit = kNoLimit;
  if (all.size() == 1) return all[0].state == Fragment::State::runs ? 0 : 1;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = i + 1; k < all.size(); ++k) {
      if (all[k].at != all[i].at || all[k].state != all[i].state || all[i].state == Fragment::State::waits_for_block)
        continue;
      all[i].lanes |= all[k].lanes;
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(k--));
    }
  }
  std::size_t chosen = all.size(), running = 0;
  const bool at_random = options().seed != 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].state != Fragment::State::runs) continue;
    ++running;
    if (at_random ? random.below(static_cast<std::uint32_t>(running)) == 0
                  : chosen == all.size() || all[i].at < all[chosen].at)
      chosen = i;
  }
  if (at_random || running < 2) return chosen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != chosen && all[i].state == Fragment::State::runs) limit = std::min(limit, all[i].at);
  }
  return chosen;
}

void BlockRun::execute(Warp& warp, std::size_t index, std::uint32_t limit) {
  std::uint32_t left = warp.fragments.size() > 1 ? kMostInARow : kNoLimit;
  const Op* const ops = code_.ops.data();
  std::int64_t executed = 0;
  const Mask lanes = warp.fragments[index].lanes;
  std::uint32_t at = warp.fragments[index].at;
  const std::uint32_t began = at;
  while (true) {
    const Op& op = ops[at];
    Mask active = lanes;
    if (op.guarded) active &= op.negated ? ~warp.mask(op.guard) : warp.mask(op.guard);
    executed += std::popcount(active);
    if (op.control == Control::none) {
      if (active != 0) {
        warp.at = at;
        op.run(warp, op, active);
      }
      ++at;
      if (at >= limit || --left == 0) break;
      continue;
    }
    if (op.control == Control::branch && (active == lanes || active == 0)) {
      at = active == 0 ? at + 1 : static_cast<std::uint32_t>(op.immediate);
      if (at >= limit || --left == 0) break;
      continue;
    }
    if (active == 0) {
      ++at;
      continue;
    }
    warp.at = at;
    Fragment& fragment = warp.fragments[index];
    fragment.at = at;
    if (active != lanes) {  // the other lanes continue as a fragment of their own
      fragment.lanes = active;
      warp.fragments.push_back({lanes & ~active, at + 1, Fragment::State::runs});
    }
    switch (op.control) {
      case Control::branch:
        warp.fragments[index].at = static_cast<std::uint32_t>(op.immediate);
        break;
      case Control::exit:
        warp.exited |= active;
        warp.fragments[index].lanes = 0;
        break;
      case Control::call:
        call(warp, warp.fragments[index], op);
        break;
      case Control::ret:
        return_from(warp, warp.fragments[index], op);
        break;
      case Control::barrier:
        arrive(warp, warp.fragments[index], op);
        break;
      case Control::together:
        together(warp, index, op, false);
        break;
      case Control::trap:
        stop(launch_.label + ": a thread of block " + std::to_string(block_.x) +
             " stops the device: " + code_.texts[op.text]);
      case Control::none:
        break;
    }
    counts().instructions += executed;
    return;
  }
  warp.fragments[index].at = at;
  counts().instructions += executed;
  // A fragment that may wait for another lets the other run first; without a limit the choice is random.
  if (left == 0 && limit != kNoLimit && at < limit && began <= at)
    std::rotate(warp.fragments.begin(), warp.fragments.begin() + 1, warp.fragments.end());
}

void BlockRun::call(Warp& warp, Fragment& fragment, const Op& op) {
  const Call& to = code_.calls[static_cast<std::size_t>(op.immediate)];
  auto* const back = warp.lanes<std::uint32_t>(to.return_place);
  for_lanes(fragment.lanes, [&](int lane) {
    back[lane] = fragment.at;
    std::byte* frame = warp.local + static_cast<std::size_t>(lane) * code_.local_bytes;
    for (const Call::Copy& copy : to.arguments) std::memcpy(frame + copy.to, frame + copy.from, copy.bytes);
  });
  fragment.at = to.entry;
}

/// Each lane returns to its own caller.
void BlockRun::return_from(Warp& warp, Fragment& fragment, const Op& op) {
  const auto* const back = warp.lanes<std::uint32_t>(op.d);
  const Mask lanes = fragment.lanes;
  fragment.lanes = 0;
  for (Mask left = lanes; left != 0;) {
    const std::uint32_t call_at = back[std::countr_zero(left)];
    const Mask same = lanes_where(left, [&](int i) { return back[i] == call_at; });
    const Call& from = code_.calls[static_cast<std::size_t>(code_.ops[call_at].immediate)];
    for_lanes(same, [&](int lane) {
      std::byte* frame = warp.local + static_cast<std::size_t>(lane) * code_.local_bytes;
      for (const Call::Copy& copy : from.results) std::memcpy(frame + copy.to, frame + copy.from, copy.bytes);
    });
    warp.fragments.push_back({same, call_at + 1, Fragment::State::runs});
    left &= ~same;
  }
}

/// Lanes execute the instruction once all lanes of their member mask are here. `give_up`: no further lane will come.
bool BlockRun::together(Warp& warp, std::size_t index, const Op& op, bool give_up) {
  const std::uint32_t at = warp.fragments[index].at;
  Mask here = warp.fragments[index].lanes;
  for (Fragment& other : warp.fragments) {
    if (&other == &warp.fragments[index] || other.at != at || other.state != Fragment::State::waits_for_lanes) continue;
    here |= other.lanes;
    other.lanes = 0;
  }
  // The member mask is the third operand of vote and match, and the fifth of the other instructions.
  const std::string& text = code_.texts[op.text];
  const bool third = text.find("vote") != std::string::npos || text.find("match") != std::string::npos;
  const auto* const members = warp.lanes<Mask>(third ? op.b : op.each[0]);
  Mask complete = 0;
  for (Mask left = here; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    if ((members[i] >> i & 1U) == 0) finding_at(warp, i, "mask", "is not in its own mask " + hex(members[i]));
    if (give_up || (members[i] & ~warp.exited & ~here) == 0) complete |= Mask{1} << i;
  }
  for (Mask left = complete; left != 0;) {  // one group at a time
    const Mask group = members[std::countr_zero(left)];
    const Mask now = lanes_where(left, [&](int i) { return members[i] == group; });
    op.run(warp, op, now);
    left &= ~now;
  }
  Fragment& fragment = warp.fragments[index];
  fragment = {here & ~complete, at, Fragment::State::waits_for_lanes};
  if (complete != 0) warp.fragments.push_back({complete, at + 1, Fragment::State::runs});
  return complete != 0;
}

void BlockRun::arrive(Warp& warp, Fragment& fragment, const Op& op) {
  const int first = std::countr_zero(fragment.lanes);
  const std::uint32_t id = warp.lanes<std::uint32_t>(op.a)[first] & 15U;
  Barrier& barrier = barriers_[id];
  for (const Fragment& other : warp.fragments) {
    if (other.state == Fragment::State::waits_for_block && other.at != fragment.at)
      finding_at(warp, first, "barrier", "waits here while others of its warp wait at another barrier");
  }
  const auto count = static_cast<std::uint32_t>(std::popcount(fragment.lanes));
  barrier.expected = op.b == 0 ? 0 : warp.lanes<std::uint32_t>(op.b)[first];
  barrier.arrived += count;
  if (op.c != 0) {
    barrier.votes += static_cast<std::uint32_t>(std::popcount(fragment.lanes & warp.mask(op.c)));
    barrier.voters += count;
  }
  fragment.state = Fragment::State::waits_for_block;
  if (barrier.expected == 0 && alive() < block_.threads) {
    finding_at(warp, first, "barrier",
               "waits while " + std::to_string(block_.threads - alive()) + " of " + std::to_string(block_.threads) +
                   " threads have ended");
  }
  if (barrier.arrived >= (barrier.expected == 0 ? alive() : barrier.expected)) release(id);
}

/// Releases all threads that wait at a barrier, with its vote.
void BlockRun::release(std::uint32_t id) {
  Barrier& barrier = barriers_[id];
  const bool whole_block = barrier.arrived >= alive();
  for (Warp& warp : warps_) {
    for (Fragment& fragment : warp.fragments) {
      if (fragment.state != Fragment::State::waits_for_block) continue;
      const Op& op = code_.ops[fragment.at];
      if ((warp.lanes<std::uint32_t>(op.a)[std::countr_zero(fragment.lanes)] & 15U) != id) continue;
      if (op.immediate == 1)
        for_lanes(fragment.lanes, [&](int i) { warp.lanes<std::uint32_t>(op.d)[i] = barrier.votes; });
      if (op.immediate == 2) assign(warp.mask(op.d), barrier.votes == barrier.voters ? kAllLanes : 0, fragment.lanes);
      if (op.immediate == 3) assign(warp.mask(op.d), barrier.votes != 0 ? kAllLanes : 0, fragment.lanes);
      fragment.state = Fragment::State::runs;
      ++fragment.at;
    }
  }
  barrier = {};
  const std::uint32_t now = block_.tick();
  if (whole_block) block_.barrier_at = now;
}

/// No lane can run: lanes wait for others of their warp, or threads at a barrier for threads that wait elsewhere.
void BlockRun::report_stuck() {
  for (Warp& warp : warps_) {
    for (std::size_t i = 0; i < warp.fragments.size(); ++i) {
      const Fragment& fragment = warp.fragments[i];
      if (fragment.state != Fragment::State::waits_for_lanes) continue;
      warp.at = fragment.at;
      finding_at(warp, std::countr_zero(fragment.lanes), "mask",
                 "waits for lanes of its mask that do not come (here are " + hex(fragment.lanes) + ")");
      together(warp, i, code_.ops[fragment.at], true);
      return;
    }
  }
  for (std::uint32_t id = 0; id < 16; ++id) {
    if (barriers_[id].arrived == 0) continue;
    for (Warp& warp : warps_) {
      for (const Fragment& fragment : warp.fragments) {
        if (fragment.lanes == 0 || fragment.state != Fragment::State::waits_for_block) continue;
        warp.at = fragment.at;
        finding_at(warp, std::countr_zero(fragment.lanes), "barrier",
                   "waits with " + std::to_string(barriers_[id].arrived) +
                       " threads at a barrier that the others do not reach");
        release(id);
        return;
      }
    }
    release(id);  // all threads that the barrier waited for have ended
    return;
  }
  stop(launch_.label + ": no thread can run");
}

// ---- launch ------------------------------------------------------------------------------------------------------

void run(Launch& launch) {
  static std::uint32_t last_number = 0;
  static std::uint64_t launches = 0;
  const std::uint32_t blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
  launch.first_number = last_number + 1;
  launch.releases.resize(blocks);
  Random random(mixed(options().seed + 977 * ++launches));
  const double begin = thread_seconds();
  BlockRun block(launch);
  // With a seed, the order of the blocks is a walk whose step has no common divisor with their number.
  const std::uint32_t first = options().seed == 0 ? 0 : random.below(blocks);
  std::uint64_t step = options().seed == 0 ? 1 : 1 + random.below(blocks);
  while (std::gcd(step, static_cast<std::uint64_t>(blocks)) != 1) ++step;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const auto which = static_cast<std::uint32_t>((first + i * step) % blocks);
    block.run(which % launch.grid[0], which / launch.grid[0] % launch.grid[1], which / launch.grid[0] / launch.grid[1],
              launch.first_number + which, random);
  }
  last_number += blocks;
  counts().seconds += thread_seconds() - begin;
  ++counts().launches;
  counts().blocks += blocks;
}

}  // namespace kozero::gpu_emulator
