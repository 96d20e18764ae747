// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// parameter_access.hpp: how a model reaches its weights and gradients, which may be sharded over ranks.
//   acquire(u) ... use ... release(u)          forward, and again in backward
//   gradient(u) ... add into it ... gradient_ready(u)   once per unit and micro-step, after its last contributor
// The flat Views have the unit's extent; a tensor lies at its row's offset (ParameterTable). Backward adds into
// gradient(u), which is zero or has earlier contributions. Exception: if gradient(u).begins, rows with
// Parameter::overwritten are uninitialized, and their first contributor overwrites them. A unit of VocabularyUse::both
// has two sums: lookups add to lookup_gradient(u) at another time, and each sum becomes ready once per micro-step. A
// frozen unit (Unit::trainable) has no gradient: the View is empty, and gradient_ready(u) has no effect. The interface
// hides communicators, ranks and sharding.
#pragma once
#include <kozero/core/views.hpp>

namespace kozero {

/// The buffer to which backward adds a unit's gradient.
struct UnitGradient {
  Vector<float> values;
  bool begins = false;  ///< no contribution was added yet
};

template <class Scalar>
class ParameterAccess {
 public:
  virtual ~ParameterAccess() = default;
  /// The unit's weights, valid until release(unit). Acquiring an acquired unit is an internal error.
  virtual Vector<const Scalar> acquire(int unit) = 0;
  virtual void release(int unit) = 0;
  /// The unit's gradient buffer, valid until gradient_ready(unit).
  virtual UnitGradient gradient(int unit) = 0;
  virtual void gradient_ready(int unit) = 0;
  /// The buffer for the lookups' gradient of a unit of VocabularyUse::both, valid until lookup_gradient_ready(unit).
  /// Contributors add to the buffer and never overwrite it.
  virtual UnitGradient lookup_gradient(int unit) = 0;
  virtual void lookup_gradient_ready(int unit) = 0;
};

}  // namespace kozero
