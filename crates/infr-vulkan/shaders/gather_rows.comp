#include "lib/prelude.glsl"
// y[o] = x[rows[o]]. Spec: 0 workgroup size.
layout(push_constant, scalar) uniform Push { uint64_t counts, rows, x, y; uint width; } p;

void main() {
  const uint row = gl_WorkGroupID.y, i = gl_WorkGroupID.x * WG + gl_LocalInvocationIndex;
  if (row >= count_at(p.counts, COUNT_OUT_ROWS) || i >= p.width) { return; }
  F32(row_at(p.y, row, p.width)).v[i] = F32(row_at(p.x, U32(p.rows).v[row], p.width)).v[i];
}
