// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// export_weights.hpp: the parameters of a weights file or a checkpoint's state alone, as one plain HDF5 weights file.
//   /parameters/<name>   f32, in bits; description, step and tokens as they were
#pragma once
#include <string>

#include <kozero/core/parameter_table.hpp>
#include <kozero/exchange/export_folder.hpp>

namespace kozero::exchange {

/// Streams from order.weights, verified before, to order.out. Throws Error(deck, input or write).
Exported export_weights(const ExportOrder& order, const ParameterTable& table);

}  // namespace kozero::exchange
