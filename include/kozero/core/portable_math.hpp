// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// portable_math.hpp: exp, log, pow, sin and cos in double, with the same bits on every processor.
//   exp(x) = 2^n exp(r)              n = round(x / ln 2),  r = x - n ln 2,  exp(r) = 1 + r + r^2 P(r^2..)
//   log(x) = k ln 2 + log(1 + f)     x = 2^k (1 + f),  1 + f in [sqrt(1/2), sqrt(2)],  s = f / (2 + f)
//            log(1 + f) = 2 s + s^3 Q(s^2)
//   sin, cos(a): of r = a - n pi/2 in [-pi/4, pi/4],  sin(r) = r + r^3 S(r^2),  cos(r) = 1 - r^2/2 + r^4 C(r^2)
//   pow(b, y) = exp(y log(b)), with the logarithm and its product in two doubles
// The C library has one implementation per kind of processor, and their last bits differ. These functions use only
// + - * / and integer operations, which IEEE 754 rounds correctly: compiled with -ffp-contract=off (and without
// -ffast-math), every compiler gives the same bits. Contracted to multiply-adds, the error bounds still hold.
// The constants ln 2 and pi/2 are split, so that n times each part except the last is exact (Cody, Waite, "Software
// manual for the elementary functions", 1980). P, Q, S and C are the polynomials with the least error of these forms
// (Remez's algorithm in 200 bits), with coefficients rounded to double.
// Errors, in units in the last place of a double (ulp): each function states its bound; tested against long double.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

namespace kozero {

/// The sum `high` + `low` of two doubles, |low| <= ulp(high) / 2.
struct DoubleSum {
  double high, low;
};

struct SinCos {
  double sin, cos;
};

namespace portable {

inline constexpr double kLn2High = 0x1.62e42fefa3800p-1;  ///< 42 bits: its product with an exponent is exact
inline constexpr double kLn2Low = 0x1.ef35793c76730p-45;
inline constexpr double kRounder = 0x1.8p52;  ///< adding it leaves an integer in the low bits
inline constexpr std::uint64_t kFraction = (std::uint64_t{1} << 52) - 1;
inline constexpr double kInfinity = Kokkos::Experimental::infinity_v<double>;
inline constexpr double kNaN = Kokkos::Experimental::quiet_NaN_v<double>;

/// c[0] + c[1] x + c[2] x^2 + ..., by Estrin's scheme: sums of pairs, then of pairs of pairs, without a long chain.
template <int N>
KOKKOS_INLINE_FUNCTION double polynomial(double x, const double (&c)[N]) {
  if constexpr (N == 1) {
    return c[0];
  } else {
    double pairs[(N + 1) / 2] = {};
    for (int i = 0; i < N / 2; ++i) pairs[i] = c[2 * i] + x * c[2 * i + 1];
    if constexpr (N % 2 == 1) pairs[N / 2] = c[N - 1];
    return polynomial(x * x, pairs);
  }
}

/// 2^n for n in [-1022, 1023].
KOKKOS_INLINE_FUNCTION double power_of_two(std::int64_t n) {
  return Kokkos::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

/// a + b exactly. (Knuth, "The art of computer programming", volume 2, 4.2.2.)
KOKKOS_INLINE_FUNCTION DoubleSum exact_sum(double a, double b) {
  const double sum = a + b;
  const double of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}

/// The first 26 bits of x, and the rest.
KOKKOS_INLINE_FUNCTION DoubleSum halves(double x) {
  const double high = Kokkos::bit_cast<double>(Kokkos::bit_cast<std::uint64_t>(x) & ~((std::uint64_t{1} << 27) - 1));
  return {high, x - high};
}

/// a * b, to 2^-105 of it. (Dekker 1971, doi:10.1007/BF01397083.)
KOKKOS_INLINE_FUNCTION DoubleSum long_product(double a, double b) {
  const double product = a * b;
  const DoubleSum x = halves(a), y = halves(b);
  return {product, ((x.high * y.high - product) + x.high * y.low + x.low * y.high) + x.low * y.low};
}

/// exp(high + low). The power of two is multiplied in two steps, since 2^1024 and 2^-1075 are no doubles.
KOKKOS_INLINE_FUNCTION double exp_of(double high, double low) {
  const double x = high < -746.0 ? -746.0 : high > 710.0 ? 710.0 : high;
  const double shifted = x * 0x1.71547652b82fep+0 + kRounder;
  const double n = shifted - kRounder;
  const double r = ((x - n * kLn2High) - n * kLn2Low) + (x == high ? low : 0.0);
  const double p =
      polynomial(r, {0.5, 0.16666666666666685, 0.04166666666666673, 0.008333333333316737, 0.001388888888885855,
                     0.0001984126989706077, 2.4801587373539667e-05, 2.7557234235187366e-06, 2.755723352420986e-07,
                     2.511224034258042e-08, 2.092689436471473e-09});
  const auto exponent = static_cast<std::int64_t>(Kokkos::bit_cast<std::uint64_t>(shifted) & 0xFFF) -
                        static_cast<std::int64_t>((Kokkos::bit_cast<std::uint64_t>(shifted) & 0x800) << 1);
  const std::int64_t half = exponent >> 1;
  return (1.0 + (r + r * r * p)) * power_of_two(half) * power_of_two(exponent - half);
}

/// x = 2^exponent (1 + fraction), 1 + fraction in [sqrt(1/2), sqrt(2)], for a positive normal or subnormal x.
struct Scaled {
  double exponent, fraction;
};

KOKKOS_INLINE_FUNCTION Scaled scaled(double x) {
  constexpr std::uint64_t kRootBits = 0x3FE6A09E667F3BCDULL;  // of sqrt(1/2)
  const bool subnormal = x < 0x1p-1022;
  const std::uint64_t above = Kokkos::bit_cast<std::uint64_t>(subnormal ? x * 0x1p54 : x) - kRootBits;
  const auto exponent = static_cast<std::int64_t>(above) >> 52;
  const double mantissa = Kokkos::bit_cast<double>((above & kFraction) + kRootBits);
  return {static_cast<double>(exponent) - (subnormal ? 54.0 : 0.0), mantissa - 1.0};
}

/// s^3 Q(s^2) / s of log's formula, from z = s^2.
KOKKOS_INLINE_FUNCTION double log_tail(double z) {
  return z * polynomial(z, {0.6666666666666734, 0.39999999999414326, 0.28571428742473803, 0.22222198563574103,
                            0.18183564862568238, 0.15314035930263387, 0.14796104599841056});
}

/// log(x) with a relative error of 2^-57, for a positive finite x.
KOKKOS_INLINE_FUNCTION DoubleSum long_log(double x) {
  const auto [exponent, f] = scaled(x);
  const double divisor = 2.0 + f;
  const double s = f / divisor;
  const DoubleSum a = halves(s), b = halves(divisor);
  const double rest = (((f - a.high * b.high) - a.high * b.low) - a.low * b.high) - a.low * b.low;
  const double s_low = (rest - s * (f - (divisor - 2.0))) / divisor;
  const double z = s * s;
  const DoubleSum sum = exact_sum(exponent * kLn2High, 2.0 * s);
  return exact_sum(sum.high, sum.low + (exponent * kLn2Low + (s * log_tail(z) + 2.0 * s_low * (1.0 + z))));
}

/// r = angle - n pi/2 in two doubles, |r| <= pi/4, and n modulo 4, for |angle| <= kLargestAngle.
struct Quadrant {
  DoubleSum r;
  std::uint64_t number;
};

inline constexpr double kLargestAngle = 0x1p23;

KOKKOS_INLINE_FUNCTION Quadrant quadrant_of(double angle) {
  const double shifted = angle * 0x1.45f306dc9c883p-1 + kRounder;
  const double n = shifted - kRounder;
  const DoubleSum second = exact_sum(angle - n * 0x1.921fb54800000p+0, n * 0x1.de973dc800000p-31);
  const DoubleSum third = exact_sum(second.high, n * 0x1.9d9cceb800000p-62);
  const double low = second.low + third.low + n * 0x1.1fc8f8cbb5bf7p-93;
  const double high = third.high + low;
  return {{high, (third.high - high) + low}, Kokkos::bit_cast<std::uint64_t>(shifted) & 3};
}

KOKKOS_INLINE_FUNCTION double sin_of(const DoubleSum& r) {
  const double z = r.high * r.high;
  const double s = polynomial(z, {-0.16666666666666632, 0.00833333333332242, -0.00019841269829812535,
                                  2.755731369361365e-06, -2.5050758389582947e-08, 1.5896812052963663e-10});
  return r.high + (r.high * z * s + r.low);
}

/// The first two terms are summed with their rounding error.
KOKKOS_INLINE_FUNCTION double cos_of(const DoubleSum& r) {
  const double z = r.high * r.high;
  const double c = polynomial(z, {0.0416666666666666, -0.0013888888888874131, 2.480158728948704e-05,
                                  -2.755731435378005e-07, 2.08757234760474e-09, -1.1359658618905165e-11});
  const double sum = 1.0 - 0.5 * z;
  return sum + (((1.0 - sum) - 0.5 * z) + (z * z * c - r.high * r.low));
}

}  // namespace portable

/// exp(x), within 1 ulp; 0 and infinity beyond the range of double.
KOKKOS_INLINE_FUNCTION double portable_exp(double x) { return portable::exp_of(x, 0.0); }

/// log(x), within 1 ulp; log(0) = -infinity, NaN for a negative x.
KOKKOS_INLINE_FUNCTION double portable_log(double x) {
  const auto [exponent, f] = portable::scaled(x);
  const double s = f / (2.0 + f);
  const double of_fraction = f - (s * (f - portable::log_tail(s * s)) - exponent * portable::kLn2Low);
  const double log = exponent * portable::kLn2High + of_fraction;
  return x > 0.0 && x < portable::kInfinity ? log : x == 0.0 ? -portable::kInfinity : x > 0.0 ? x : portable::kNaN;
}

/// log(x) of a float: the double's rounded to float.
KOKKOS_INLINE_FUNCTION float portable_log(float x) { return static_cast<float>(portable_log(static_cast<double>(x))); }

/// base^exponent for a positive finite base and a finite exponent; NaN for other bases. Within 2 ulp if
/// |exponent log(base)| <= 32, within 24 ulp to the ends of the range: the logarithm's error is multiplied by exponent.
KOKKOS_INLINE_FUNCTION double portable_pow(double base, double exponent) {
  const DoubleSum log = portable::long_log(base);
  const DoubleSum product = portable::long_product(exponent, log.high);
  const double power = portable::exp_of(product.high, product.low + exponent * log.low);
  return base > 0.0 && base < portable::kInfinity ? power : portable::kNaN;
}

/// base^count by repeated squaring, with a relative error of at most count * 2^-52. base^0 = 1.
KOKKOS_INLINE_FUNCTION double integer_power(double base, std::int64_t count) {
  double power = 1.0;
  for (; count > 0; count >>= 1) {
    if ((count & 1) != 0) power *= base;
    base *= base;
  }
  return power;
}

/// Sine and cosine, each within 1 ulp for |angle| <= 2^23 radians; NaN beyond.
KOKKOS_INLINE_FUNCTION SinCos portable_sin_cos(double angle) {
  const auto [r, number] = portable::quadrant_of(angle);
  const double sin = portable::sin_of(r), cos = portable::cos_of(r);
  const bool odd = (number & 1) != 0;
  const double sine = odd ? cos : sin, cosine = odd ? sin : cos;
  const bool known = angle >= -portable::kLargestAngle && angle <= portable::kLargestAngle;
  return {known ? ((number & 2) != 0 ? -sine : sine) : portable::kNaN,
          known ? (((number + 1) & 2) != 0 ? -cosine : cosine) : portable::kNaN};
}

KOKKOS_INLINE_FUNCTION double portable_sin(double angle) { return portable_sin_cos(angle).sin; }
KOKKOS_INLINE_FUNCTION double portable_cos(double angle) { return portable_sin_cos(angle).cos; }

}  // namespace kozero
