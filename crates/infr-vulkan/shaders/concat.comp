#include "lib/prelude.glsl"
// Joins two rows part by part. Spec: 0 workgroup size.
layout(push_constant, scalar) uniform Push { uint64_t counts, a, b, y; uint a_len, b_len, groups, count; } p;

void main() {
  const uint len = p.a_len + p.b_len;
  const uint row = gl_WorkGroupID.y, i = gl_WorkGroupID.x * WG + gl_LocalInvocationIndex;
  if (row >= count_at(p.counts, p.count) || i >= p.groups * len) { return; }
  const uint group = i / len, at = i % len;
  F32(row_at(p.y, row, p.groups * len)).v[i] =
      at < p.a_len ? F32(row_at(p.a, row, p.groups * p.a_len)).v[group * p.a_len + at]
                   : F32(row_at(p.b, row, p.groups * p.b_len)).v[group * p.b_len + at - p.a_len];
}
