// The model inside the binary, so that a clean machine has something to run.
#pragma once

#include <memory>

#include "base/mapped_file.h"

namespace vernier {

/// The bytes of the embedded GGUF file, called "demo.gguf".
[[nodiscard]] std::shared_ptr<const MappedFile> demo_model();

}  // namespace vernier
