#include "lib/prelude.glsl"
#include "lib/reduce.glsl"
#include "lib/rope.glsl"
#include "lib/pool.glsl"
// Norm per head and rotary embedding of a row's queries and keys, and the cache write of its keys and values.
// One workgroup per head: queries first, then keys, then values.
// Spec: 0 workgroup size, 1 pairing (0: neighbours, 1: halves), 2 pool precision.
layout(constant_id = 1) const uint STYLE = 0;
layout(constant_id = 2) const uint KV = 0;
layout(push_constant, scalar) uniform Push {
  uint64_t counts, positions, freqs, q, k, v, q_out, q_norm, k_norm, write_rows, k_pool, v_pool;
  uint head_counts, dims, part;
  float magnitude, eps;
} p;

void store(bool query, uint64_t to, uint i, float value) {
  if (query) { F32(to).v[i] = value; }
  else { pool_store(to, KV, i, value); }
}

void main() {
  const uint row = gl_WorkGroupID.y, at = gl_LocalInvocationIndex;
  if (row >= count_at(p.counts, COUNT_ROWS)) { return; }
  const uint heads = p.head_counts & 0xffffu, kv_heads = p.head_counts >> 16;
  const uint head_dim = p.dims & 0xffffu, value_dim = p.dims >> 16;
  const uint start = p.part & 0xffffu, n_rot = p.part >> 16;
  const bool query = gl_WorkGroupID.x < heads;
  uint head = query ? gl_WorkGroupID.x : gl_WorkGroupID.x - heads;
  const uint target = U32(p.write_rows).v[row];
  if (!query && target == NOT_WRITTEN) { return; }
  if (!query && head >= kv_heads) {
    head -= kv_heads;
    F32 v = F32(row_at(p.v, row, kv_heads * value_dim));
    const uint64_t to = pool_at(p.v_pool, KV, target, kv_heads * value_dim, head * value_dim);
    for (uint i = at; i < value_dim; i += WG) { pool_store(to, KV, i, v.v[head * value_dim + i]); }
    return;
  }
  const uint n_heads = query ? heads : kv_heads;
  const uint64_t offset = (uint64_t(row) * uint64_t(n_heads) + uint64_t(head)) * uint64_t(head_dim) * 4ul;
  F32 x = F32((query ? p.q : p.k) + offset);
  const uint64_t to =
      query ? p.q_out + offset : pool_at(p.k_pool, KV, target, kv_heads * head_dim, head * head_dim);
  const uint64_t norm = query ? p.q_norm : p.k_norm;
  float inverse = 1.0;
  if (norm != 0ul) {
    float squares = 0.0;
    for (uint i = at; i < head_dim; i += WG) { squares += x.v[i] * x.v[i]; }
    inverse = 1.0 / sqrt(group_sum(squares) / float(head_dim) + p.eps);
  }
  const uint position = U32(p.positions).v[row];
  for (uint i = at; i < n_rot / 2; i += WG) {
    const uint a = start + (STYLE == 0 ? 2 * i : i), b = start + (STYLE == 0 ? 2 * i + 1 : i + n_rot / 2);
    const vec2 turn = cos_sin(position, F32x2(p.freqs).v[i]) * p.magnitude;
    const float u = x.v[a] * inverse * optional_at(norm, p.counts, a, 1.0);
    const float v = x.v[b] * inverse * optional_at(norm, p.counts, b, 1.0);
    store(query, to, a, u * turn.x - v * turn.y);
    store(query, to, b, u * turn.y + v * turn.x);
  }
  for (uint i = at; i < head_dim; i += WG) {
    if (i < start || i >= start + n_rot) {
      store(query, to, i, x.v[i] * inverse * optional_at(norm, p.counts, i, 1.0));
    }
  }
}
