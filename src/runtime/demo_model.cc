#include "runtime/demo_model.h"

#include "embed/demo_gguf.h"

namespace vernier {

std::shared_ptr<const MappedFile> demo_model() { return MappedFile::wrap(embed::demo_gguf(), "demo.gguf"); }

}  // namespace vernier
