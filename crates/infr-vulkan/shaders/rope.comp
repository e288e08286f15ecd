#include "lib/prelude.glsl"
#include "lib/rope.glsl"
// Rotates the pairs of one head; elements outside the rotated part are copied.
// Spec: 0 workgroup size, 1 pairing (0: neighbours, 1: halves).
layout(constant_id = 1) const uint STYLE = 0;
layout(push_constant, scalar) uniform Push {
  uint64_t counts, positions, freqs, x, y;
  uint heads, head_dim, part;
  float magnitude;
} p;

void main() {
  const uint row = gl_WorkGroupID.y, start = p.part & 0xffffu, n_rot = p.part >> 16;
  if (row >= count_at(p.counts, COUNT_ROWS)) { return; }
  const uint64_t offset = (uint64_t(row) * uint64_t(p.heads) + uint64_t(gl_WorkGroupID.x)) * uint64_t(p.head_dim) * 4ul;
  F32 x = F32(p.x + offset), y = F32(p.y + offset);
  const uint position = U32(p.positions).v[row];
  for (uint i = gl_LocalInvocationIndex; i < n_rot / 2; i += WG) {
    const uint a = start + (STYLE == 0 ? 2 * i : i), b = start + (STYLE == 0 ? 2 * i + 1 : i + n_rot / 2);
    const vec2 turn = cos_sin(position, F32x2(p.freqs).v[i]) * p.magnitude;
    const float u = x.v[a], v = x.v[b];
    y.v[a] = u * turn.x - v * turn.y;
    y.v[b] = u * turn.y + v * turn.x;
  }
  for (uint i = gl_LocalInvocationIndex; i < p.head_dim; i += WG) {
    if (i < start || i >= start + n_rot) { y.v[i] = x.v[i]; }
  }
}
