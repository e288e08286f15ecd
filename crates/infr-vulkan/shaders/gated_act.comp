#include "lib/prelude.glsl"
#include "lib/math.glsl"
// y = act(gate) * up, elementwise. Spec: 0 workgroup size, 1 activation.
layout(constant_id = 1) const uint ACT = 0;
layout(push_constant, scalar) uniform Push { uint64_t counts, gate, up, y; uint width, count; } p;

void main() {
  const uint row = gl_WorkGroupID.y, i = gl_WorkGroupID.x * WG + gl_LocalInvocationIndex;
  if (row >= count_at(p.counts, p.count) || i >= p.width) { return; }
  F32(row_at(p.y, row, p.width)).v[i] =
      gate_act(ACT, F32(row_at(p.gate, row, p.width)).v[i], F32(row_at(p.up, row, p.width)).v[i]);
}
