#include "lib/prelude.glsl"
#include "lib/pool.glsl"
// Stores a row's keys and values in the pools.
// Spec: 0 workgroup size, 1 pool precision.
layout(constant_id = 1) const uint KV = 0;
layout(push_constant, scalar) uniform Push {
  uint64_t counts, write_rows, k, v, k_pool, v_pool;
  uint key_width, value_width;
} p;

void main() {
  const uint row = gl_WorkGroupID.y, i = gl_WorkGroupID.x * WG + gl_LocalInvocationIndex;
  if (row >= count_at(p.counts, COUNT_ROWS) || i >= p.key_width + p.value_width) { return; }
  const uint target = U32(p.write_rows).v[row];
  if (target == NOT_WRITTEN) { return; }
  if (i < p.key_width) {
    pool_store(pool_at(p.k_pool, KV, target, p.key_width, 0), KV, i, F32(row_at(p.k, row, p.key_width)).v[i]);
  } else {
    const uint j = i - p.key_width;
    pool_store(pool_at(p.v_pool, KV, target, p.value_width, 0), KV, j, F32(row_at(p.v, row, p.value_width)).v[j]);
  }
}
