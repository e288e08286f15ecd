#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#include "quant"
// y[row] = row `id` of the table, decoded. One invocation decodes four elements.
// Spec: 0 workgroup size = elements of a part, a multiple of every weight type's block.
layout(push_constant, scalar) uniform Push { uint64_t counts, tokens, last, table, y; uint width; } p;

void main() {
  const uint row = gl_WorkGroupID.y;
  if (row >= count_at(p.counts, COUNT_ROWS)) { return; }
  uint id = U32(p.tokens).v[row];
  if ((id >> 31) != 0) { id = U32(p.last).v[id & 0x7fffffffu]; }
  const uint64_t source = p.table + uint64_t(id) * row_bytes(p.width), target = row_at(p.y, row, p.width);
  const uint first = gl_WorkGroupID.x * WG;
#ifdef PLAIN
  const uint i = first + gl_LocalInvocationIndex;
  if (i < p.width) { F32(target).v[i] = one_get(source, i); }
#else
  const uint at = gl_LocalInvocationIndex, unit = first / UNIT + at / (UNIT / 4), k = at % (UNIT / 4);
  if (at < WG / 4 && unit < p.width / UNIT) {
    F32x4(target).v[unit_elem(unit, k) / 4] = unit_get(unit_load(source, unit), unit, k);
  }
#endif
}
