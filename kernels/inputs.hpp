// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// inputs.hpp: how a kernel spells what it only reads.
// A kernel's storage type T is deduced from its output; an input of T is taken as a View of const T, to which a View of
// T converts by itself.
#pragma once
#include <type_traits>

#include <kozero/core/views.hpp>

namespace kozero::kernels {

template <class T>
using VectorIn = Vector<const std::type_identity_t<T>>;
template <class T>
using MatrixIn = Matrix<const std::type_identity_t<T>>;

}  // namespace kozero::kernels
