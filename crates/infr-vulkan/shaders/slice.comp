#include "lib/prelude.glsl"
// Keeps `len` elements from `start` of each part of a row. Spec: 0 workgroup size.
layout(push_constant, scalar) uniform Push { uint64_t counts, x, y; uint part, start, len, groups, count; } p;

void main() {
  const uint row = gl_WorkGroupID.y, i = gl_WorkGroupID.x * WG + gl_LocalInvocationIndex;
  if (row >= count_at(p.counts, p.count) || i >= p.groups * p.len) { return; }
  F32(row_at(p.y, row, p.groups * p.len)).v[i] =
      F32(row_at(p.x, row, p.groups * p.part)).v[i / p.len * p.part + p.start + i % p.len];
}
