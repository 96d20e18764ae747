// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// kernel_arguments.cu: where the host puts the members of a kernel's argument, and where the device reads them.
// Compiled by KernelArguments.cmake, never linked. In device code sizeof and offsetof give the host's figures, so that
// only the PTX shows what the device does: each kernel reads the member behind one more View.
#include <cstddef>
#include <Kokkos_Core.hpp>

using Space = Kokkos::CudaSpace;
using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;

struct Arguments {
  Kokkos::View<float*, Kokkos::LayoutRight, Space, Unmanaged> vector;
  int after_vector;
  Kokkos::View<const float**, Kokkos::LayoutRight, Space, Unmanaged> matrix;
  int after_matrix;
  Kokkos::View<double*, Space> owner;
  int after_owner;
};

extern "C" __global__ void kozero_after_vector(Arguments all, int* out) { *out = all.after_vector; }
extern "C" __global__ void kozero_after_matrix(Arguments all, int* out) { *out = all.after_matrix; }
extern "C" __global__ void kozero_after_owner(Arguments all, int* out) { *out = all.after_owner; }

// "kozero_host 0136 0032 0080 0128": size, offsets; as text in the object file.
#define KOZERO_DIGITS(n) \
  char('0' + (n) / 1000 % 10), char('0' + (n) / 100 % 10), char('0' + (n) / 10 % 10), char('0' + (n) % 10)
extern const char kozero_host_layout[] = {'k',
                                          'o',
                                          'z',
                                          'e',
                                          'r',
                                          'o',
                                          '_',
                                          'h',
                                          'o',
                                          's',
                                          't',
                                          ' ',
                                          KOZERO_DIGITS(sizeof(Arguments)),
                                          ' ',
                                          KOZERO_DIGITS(offsetof(Arguments, after_vector)),
                                          ' ',
                                          KOZERO_DIGITS(offsetof(Arguments, after_matrix)),
                                          ' ',
                                          KOZERO_DIGITS(offsetof(Arguments, after_owner)),
                                          '\0'};
