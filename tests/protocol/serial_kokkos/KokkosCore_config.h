// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// KokkosCore_config.h: Kokkos as it is configured, but with its serial back end alone: what includes it computes on the
// thread that calls. The files beside this one leave out the other back ends' headers.
#pragma once
#include_next <KokkosCore_config.h>
#undef KOKKOS_ENABLE_OPENMP
