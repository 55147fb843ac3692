// Norms and rotation of queries and keys, and how keys and values get into the cache.
#include <cmath>

#include "backend/check_args.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/kv_cell.h"

namespace vernier {
namespace {

using vernier_isa::Kernels;

/// One query of the batch: a token of a slice.
struct Query {
  const SequenceSlice* slice;
  std::int64_t row;
  std::int64_t position;
};

/// Query i of all slices, one slice after another.
Query find_query(std::span<const SequenceSlice> slices, std::int64_t i) {
  for (const SequenceSlice& slice : slices) {
    if (i < slice.num_tokens) return {&slice, slice.first_row + i, slice.past + i};
    i -= slice.num_tokens;
  }
  return {};
}

std::int64_t count_tokens(std::span<const SequenceSlice> slices) {
  std::int64_t count = 0;
  for (const SequenceSlice& slice : slices) count += slice.num_tokens;
  return count;
}

/// Cosine and sine of a position for each pair: table[2 j], table[2 j + 1].
void fill_rotation(const RotationTables::Key& rope, std::int64_t position, float* table) {
  for (const double frequency : rope.inverse_frequencies) {
    const double angle = static_cast<double>(position) * frequency;
    *table++ = static_cast<float>(std::cos(angle) * rope.magnitude);
    *table++ = static_cast<float>(std::sin(angle) * rope.magnitude);
  }
}

void rotate_head(const RopeTable& rope, const float* table, float* head) {
  const auto pairs = static_cast<std::int64_t>(rope.inverse_frequencies.size());
  const bool halves = rope.pairing == RopePairing::kHalves;
  const std::int64_t step = halves ? 1 : 2;
  const std::int64_t offset = !halves ? 1 : rope.pair_offset != 0 ? rope.pair_offset : pairs;
  for (std::int64_t j = 0; j < pairs; ++j) {
    const float cosine = table[2 * j];
    const float sine = table[2 * j + 1];
    const float first = head[j * step];
    const float second = head[j * step + offset];
    head[j * step] = first * cosine - second * sine;
    head[j * step + offset] = second * cosine + first * sine;
  }
}

/// x * rsqrt(mean(x^2) + eps) * weight over one head.
void normalize_head(const Kernels& kernels, const float* x, std::span<const float> weight, float eps, std::int64_t dim,
                    float* y) {
  const float mean = kernels.sum_of_squares(x, dim) / static_cast<float>(dim);
  kernels.scale(x, 1.0F / std::sqrt(mean + eps), weight.empty() ? nullptr : weight.data(), dim, y);
}

void process_heads(const Kernels& kernels, const RopeStoreArgs& args, float* row, std::int32_t num_heads,
                   std::span<const float> norm, const float* table) {
  for (std::int64_t h = 0; h < num_heads; ++h) {
    float* head = row + h * args.head_dim;
    if (!norm.empty()) normalize_head(kernels, head, norm, args.eps, args.head_dim, head);
    if (args.rope != nullptr) rotate_head(*args.rope, table, head);
  }
}

/// `head` is room for head_dim floats.
void store_heads(const Kernels& kernels, const RopeStoreArgs& args, const Query& query, float* head) {
  const KvLayer& kv = args.kv;
  for (std::int64_t h = 0; h < args.num_kv_heads; ++h) {
    const std::int64_t at = kv_index(kv, *query.slice, query.position, h);
    const float* key = args.k.row(query.row) + h * args.head_dim;
    const float* value = args.v.row(query.row) + h * args.head_dim;
    if (args.normalize_v) {
      normalize_head(kernels, value, {}, args.eps, args.head_dim, head);
      value = head;
    }
    for (std::int64_t d = 0; d < args.head_dim; ++d) {
      store_kv(kv, kv.keys, at + d, key[d], kv.key_scale);
      store_kv(kv, kv.values, at + d, value[d], kv.value_scale);
    }
  }
}

}  // namespace

RotationTables::Entry& RotationTables::find(Key key) {
  for (Entry& entry : entries_) {
    if (entry.key == key) return entry;
  }
  Entry& entry = entries_[next_];
  next_ = (next_ + 1) % entries_.size();
  entry.key = std::move(key);
  entry.is_filled = false;
  return entry;
}

Result<const float*> CpuBackend::rotations(const RopeStoreArgs& args) {
  RotationTables::Key key = {args.rope->inverse_frequencies, args.rope->magnitude, {}};
  const std::int64_t tokens = count_tokens(args.slices);
  for (const SequenceSlice& slice : args.slices) {
    for (std::int64_t t = 0; t < slice.num_tokens; ++t) key.positions.push_back(slice.past + t);
  }
  RotationTables::Entry& entry = rotation_tables_.find(std::move(key));
  const auto size = static_cast<std::int64_t>(2 * args.rope->inverse_frequencies.size());
  VN_ASSIGN(float* tables, entry.tables.get(static_cast<std::size_t>(tokens * size)));
  if (entry.is_filled) return tables;
  const auto fill = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      fill_rotation(entry.key, entry.key.positions[static_cast<std::size_t>(i)], tables + i * size);
    }
  };
  pool_.parallel_for(tokens, fill, 4);
  entry.is_filled = true;
  return tables;
}

Status CpuBackend::rope_and_store_kv(const RopeStoreArgs& args) {
  VN_TRY(check_args(args));
  const float* tables = nullptr;
  if (args.rope != nullptr) {
    VN_ASSIGN(tables, rotations(args));
  }
  const std::size_t table_size = args.rope != nullptr ? 2 * args.rope->inverse_frequencies.size() : 0;
  const std::size_t part = (static_cast<std::size_t>(args.head_dim) + 15) / 16 * 16;
  VN_ASSIGN(float* scratch, worker_floats_.get(part * static_cast<std::size_t>(pool_.size())));
  const auto process = [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Query query = find_query(args.slices, i);
      const float* table = tables + static_cast<std::size_t>(i) * table_size;
      process_heads(kernels_, args, args.q.row(query.row), args.num_heads, args.q_norm, table);
      if (args.v.data == nullptr) continue;
      process_heads(kernels_, args, args.k.row(query.row), args.num_kv_heads, args.k_norm, table);
      store_heads(kernels_, args, query, scratch + part * static_cast<std::size_t>(worker));
    }
  };
  pool_.parallel_for(count_tokens(args.slices), process, 4);
  return {};
}

}  // namespace vernier
