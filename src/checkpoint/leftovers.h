// What is to be said of tensors that no spec took: read past for a stated reason, scales without their weight, parts of
// foreign quantisations, or unknown. Internal to checkpoint/.
#pragma once

#include <string>

#include "checkpoint/ledger.h"
#include "checkpoint/resolver.h"
#include "checkpoint/tensor_groups.h"

namespace vernier {

/// kUnsupported, naming the producer, when the checkpoint holds parts of a quantisation that Vernier doesn't know.
[[nodiscard]] Status refuse_foreign(const ResolveInput& input, const TensorGroups& groups);

/// Finds the fate of every record that is still open.
void account_leftovers(const ResolveInput& input, const TensorGroups& groups, Ledger& ledger);

/// "gguf", what the config says, or what the names say: see Accounting::dialect.
[[nodiscard]] std::string dialect_of(const ResolveInput& input, const TensorGroups& groups);

}  // namespace vernier
