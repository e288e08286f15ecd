#include "lib/prelude.glsl"
// A sum or product of a row with a row, with one value per part, or with a repeated vector.
// Spec: 0 workgroup size, 1 function (0 add, 1 multiply).
layout(constant_id = 1) const uint FUNC = 0;
layout(push_constant, scalar) uniform Push { uint64_t counts, a, b, y; uint width, part, stride, count; } p;

void main() {
  const uint row = gl_WorkGroupID.y, i = gl_WorkGroupID.x * WG + gl_LocalInvocationIndex;
  if (row >= count_at(p.counts, p.count) || i >= p.width) { return; }
  const float a = F32(row_at(p.a, row, p.width)).v[i];
  const float b = p.stride > 0 ? F32(row_at(p.b, row, p.stride)).v[i / p.part] : F32(p.b).v[i % p.part];
  F32(row_at(p.y, row, p.width)).v[i] = FUNC == 0 ? a + b : a * b;
}
