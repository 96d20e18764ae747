// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// predicates.cpp: comparisons, selections, logic on predicates, and votes of a warp's lanes.
#include <bit>
#include <cmath>
#include <cstdint>

#include "forms.hpp"
#include "report.hpp"
#include "warp.hpp"

namespace kozero::gpu_emulator {
namespace {

struct Equal {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b || a > b;
  }
};  // comparisons are false for NaN
struct Less {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};
struct Numbers {
  template <class T>
  bool operator()(T a, T b) const {
    return a == a && b == b;
  }
};
/// True for NaN, else as F.
template <class F>
struct Unordered {
  template <class T>
  bool operator()(T a, T b) const {
    return a != a || b != b || F{}(a, b);
  }
};
struct AnyNan {
  template <class T>
  bool operator()(T a, T b) const {
    return a != a || b != b;
  }
};

/// `each[0]`: the predicate for the opposite, or 0. `c`: a predicate that is combined with, by `immediate`.
enum Combined : std::int64_t { kAlone, kAnd, kOr, kXor };

template <class T, class F>
void compare(Warp& w, const Op& op, Mask mask) {
  T *a = w.lanes<T>(op.a), *b = w.lanes<T>(op.b);
  Mask holds = lanes_where(mask, [&](int i) { return F{}(a[i], b[i]); }), opposite = ~holds;
  if (op.immediate != kAlone) {
    const Mask with = w.mask(op.c);
    holds = op.immediate == kAnd ? holds & with : op.immediate == kOr ? holds | with : holds ^ with;
    opposite = op.immediate == kAnd ? opposite & with : op.immediate == kOr ? opposite | with : opposite ^ with;
  }
  assign(w.mask(op.d), holds, mask);
  if (op.count == 2) assign(w.mask(op.each[0]), opposite, mask);
}

template <class F>
Handler compare_of(std::string_view type) {
  if (type == "f32") return compare<float, F>;
  if (type == "f64") return compare<double, F>;
  if (type == "u16" || type == "b16") return compare<std::uint16_t, F>;
  if (type == "s16") return compare<std::int16_t, F>;
  if (type == "u32" || type == "b32") return compare<std::uint32_t, F>;
  if (type == "s32") return compare<std::int32_t, F>;
  if (type == "u64" || type == "b64") return compare<std::uint64_t, F>;
  if (type == "s64") return compare<std::int64_t, F>;
  return nullptr;
}

Handler comparison(std::string_view how, std::string_view type) {
  if (how == "eq") return compare_of<Equal>(type);
  if (how == "ne") return compare_of<NotEqual>(type);
  if (how == "lt" || how == "lo") return compare_of<Less>(type);
  if (how == "le" || how == "ls") return compare_of<LessEqual>(type);
  if (how == "gt" || how == "hi") return compare_of<Greater>(type);
  if (how == "ge" || how == "hs") return compare_of<GreaterEqual>(type);
  if (how == "equ") return compare_of<Unordered<Equal>>(type);
  if (how == "neu") return compare_of<Unordered<NotEqual>>(type);
  if (how == "ltu") return compare_of<Unordered<Less>>(type);
  if (how == "leu") return compare_of<Unordered<LessEqual>>(type);
  if (how == "gtu") return compare_of<Unordered<Greater>>(type);
  if (how == "geu") return compare_of<Unordered<GreaterEqual>>(type);
  if (how == "num") return compare_of<Numbers>(type);
  if (how == "nan") return compare_of<AnyNan>(type);
  return nullptr;
}

template <class T>
void select(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a), *b = w.lanes<T>(op.b);
  const Mask first = w.mask(op.c);
  for_lanes(mask, [&](int i) { d[i] = (first >> i & 1U) != 0 ? a[i] : b[i]; });
}

struct And {
  Mask operator()(Mask a, Mask b) const { return a & b; }
};
struct Or {
  Mask operator()(Mask a, Mask b) const { return a | b; }
};
struct Xor {
  Mask operator()(Mask a, Mask b) const { return a ^ b; }
};
struct Not {
  Mask operator()(Mask a, Mask) const { return ~a; }
};
struct Move {
  Mask operator()(Mask a, Mask) const { return a; }
};

template <class F>
void logic(Warp& w, const Op& op, Mask mask) {
  assign(w.mask(op.d), F{}(w.mask(op.a), w.mask(op.b)), mask);
}

// ---- together ----------------------------------------------------------------------------------------------------

/// The lane from which lane `lane` reads, and whether that lane is in its segment.
struct Source {
  int lane;
  bool inside;
};
enum Shuffle { kUp, kDown, kButterfly, kIndex };

template <Shuffle kHow>
Source source(int lane, int by, std::uint32_t clamp_and_segment) {
  const int segment = static_cast<int>(clamp_and_segment >> 8 & 31U), clamp = static_cast<int>(clamp_and_segment & 31U);
  const int lowest = lane & segment, limit = lowest | (clamp & ~segment);
  int from = lane;
  if (kHow == kUp) from = lane - by;
  if (kHow == kDown) from = lane + by;
  if (kHow == kButterfly) from = lane ^ by;
  if (kHow == kIndex) from = lowest | (by & ~segment);
  const bool inside = kHow == kUp ? from >= limit : from <= limit;
  return {inside ? from : lane, inside};
}

template <Shuffle kHow>
void shuffle(Warp& w, const Op& op, Mask mask) {
  using U = std::uint32_t;
  U *d = w.lanes<U>(op.d), *a = w.lanes<U>(op.a), *by = w.lanes<U>(op.b), *segments = w.lanes<U>(op.c),
    *members = w.lanes<U>(op.each[0]);
  U before[kLanes];
  std::memcpy(before, a, sizeof(before));
  w.shuffled.note(mask, members, w.block->tick());
  for (Mask left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const Source from = source<kHow>(i, static_cast<int>(by[i] & 31U), segments[i]);
    if ((mask & members[i] & Mask{1} << from.lane) == 0) {
      finding_at(
          w, i, "shuffle",
          "reads lane " + std::to_string(from.lane) + ", which does not take part (mask " + hex(members[i]) + ")");
    }
    d[i] = before[from.lane];
    if (op.count == 2) assign(w.mask(op.each[1]), from.inside ? kAllLanes : 0, Mask{1} << i);
  }
}

enum Vote { kAllOf, kAnyOf, kUniform, kBallot };
template <Vote kHow>
void vote(Warp& w, const Op& op, Mask mask) {
  const auto* members = w.lanes<std::uint32_t>(op.b);
  const Mask predicate = w.mask(op.a);
  for (Mask left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const Mask among = members[i] & mask, holds = predicate & among;
    if (kHow == kBallot) w.lanes<std::uint32_t>(op.d)[i] = holds;
    const bool result = kHow == kAllOf ? holds == among : kHow == kAnyOf ? holds != 0 : holds == 0 || holds == among;
    if (kHow != kBallot) assign(w.mask(op.d), result ? kAllLanes : 0, Mask{1} << i);
  }
}

/// bar.warp.sync orders its lanes' accesses before it before those after it.
void order_lanes(Warp& w, const Op& op, Mask mask) { w.synced.note(mask, w.lanes<Mask>(op.each[0]), w.block->tick()); }

template <class T>
void match_any(Warp& w, const Op& op, Mask mask) {
  const T* a = w.lanes<T>(op.a);
  const auto* members = w.lanes<std::uint32_t>(op.b);
  for (Mask left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    w.lanes<std::uint32_t>(op.d)[i] = lanes_where(mask & members[i], [&](int k) { return a[k] == a[i]; });
  }
}

void active_mask(Warp& w, const Op& op, Mask mask) {
  for_lanes(mask, [&](int i) { w.lanes<std::uint32_t>(op.d)[i] = mask; });
}

Form together(Handler run, std::uint8_t d, std::uint8_t a, std::uint8_t b, std::uint8_t c = 0, std::uint8_t e = 0) {
  return {run, Control::together, {d, a, b, c, e}};
}

}  // namespace

Form predicate_form(const Words& words) {
  const std::string_view base = words.base(), type = words.type();
  if (base == "setp" && words.words.size() >= 3) {
    const std::uint8_t n = type.ends_with("64") ? 8 : type.ends_with("32") ? 4 : 2;
    return words.has("ftz") ? Form{} : form(comparison(words.words[1], type), 0, n, n, 0);
  }
  if (base == "selp") {
    if (type.ends_with("64")) return form(select<std::uint64_t>, 8, 8, 8, 0);
    if (type.ends_with("32")) return form(select<std::uint32_t>, 4, 4, 4, 0);
    return form(select<std::uint16_t>, 2, 2, 2, 0);
  }
  if (type != "pred") return {};
  if (base == "and") return form(logic<And>, 0, 0, 0);
  if (base == "or") return form(logic<Or>, 0, 0, 0);
  if (base == "xor") return form(logic<Xor>, 0, 0, 0);
  if (base == "not") return form(logic<Not>, 0, 0);
  if (base == "mov") return form(logic<Move>, 0, 0);
  return {};
}

Form warp_form(const Words& words) {
  const std::string_view base = words.base();
  if (base == "shfl" && words.has("sync")) {
    if (words.has("up")) return together(shuffle<kUp>, 4, 4, 4, 4, 4);
    if (words.has("down")) return together(shuffle<kDown>, 4, 4, 4, 4, 4);
    if (words.has("bfly")) return together(shuffle<kButterfly>, 4, 4, 4, 4, 4);
    if (words.has("idx")) return together(shuffle<kIndex>, 4, 4, 4, 4, 4);
  }
  if (base == "vote" && words.has("sync")) {
    if (words.has("ballot")) return together(vote<kBallot>, 4, 0, 4);
    if (words.has("all")) return together(vote<kAllOf>, 0, 0, 4);
    if (words.has("any")) return together(vote<kAnyOf>, 0, 0, 4);
    if (words.has("uni")) return together(vote<kUniform>, 0, 0, 4);
  }
  if (base == "match" && words.has("any")) {
    return words.type() == "b64" ? together(match_any<std::uint64_t>, 4, 8, 4)
                                 : together(match_any<std::uint32_t>, 4, 4, 4);
  }
  if (words.text == "bar.warp.sync") return together(order_lanes, 0, 0, 0);
  if (base == "activemask") return form(active_mask, 4);
  return {};
}

}  // namespace kozero::gpu_emulator
