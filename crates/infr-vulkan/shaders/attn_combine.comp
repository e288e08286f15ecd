#include "lib/prelude.glsl"
#include "lib/math.glsl"
// Merges the splits of a head in ascending order. Spec: 0 workgroup size.
layout(push_constant, scalar) uniform Push {
  uint64_t counts, partials, y, sinks;
  uint heads, value_dim, splits;
} p;

void main() {
  const uint row = gl_WorkGroupID.y, head = gl_WorkGroupID.x;
  if (row >= count_at(p.counts, COUNT_ROWS)) { return; }
  const uint part = p.value_dim + 2;
  F32 partials = F32(row_at(p.partials, (row * p.heads + head) * p.splits, part));
  float best = MINUS_INF;
  for (uint s = 0; s < p.splits; s++) { best = max(best, partials.v[s * part + p.value_dim]); }
  const bool sees = best > MINUS_INF;
  const bool sinks = p.sinks != 0ul && sees;
  const float sink = sinks ? optional_at(p.sinks, p.counts, head, 0.0) : 0.0;
  if (sinks) { best = max(best, sink); }
  float total = 0.0;
  for (uint s = 0; s < p.splits; s++) {
    const float m = partials.v[s * part + p.value_dim];
    if (m > MINUS_INF) { total += partials.v[s * part + p.value_dim + 1] * exp_f32(m - best); }
  }
  if (sinks) { total += exp_f32(sink - best); }
  const float inverse = sees ? 1.0 / total : 0.0;
  for (uint i = gl_LocalInvocationIndex; i < p.value_dim; i += WG) {
    float sum = 0.0;
    for (uint s = 0; s < p.splits; s++) {
      const float m = partials.v[s * part + p.value_dim];
      if (m > MINUS_INF) { sum += partials.v[s * part + i] * exp_f32(m - best); }
    }
    F32(row_at(p.y, row * p.heads + head, p.value_dim)).v[i] = sum * inverse;
  }
}
