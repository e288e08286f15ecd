#include "lib/prelude.glsl"
#include "lib/reduce.glsl"
// RMS norm over each group of a row (Zhang and Sennrich, 2019), with or without a residual sum before it.
// Spec: 0 workgroup size, 1 whether x + b is summed first.
layout(constant_id = 1) const uint ADD = 0;
layout(push_constant, scalar) uniform Push {
  uint64_t counts, x, b, w, sum, y;
  uint width, groups;
  float eps;
  uint count;
} p;

const uint KEPT = 8;

void main() {
  const uint row = gl_WorkGroupID.y, at = gl_LocalInvocationIndex;
  if (row >= count_at(p.counts, p.count)) { return; }
  const uint64_t offset =
      (uint64_t(row) * uint64_t(p.groups) + uint64_t(gl_WorkGroupID.x)) * uint64_t(p.width) * 4ul;
  F32 x = F32(p.x + offset), y = F32(p.y + offset), b = F32(p.b + offset), total = F32(p.sum + offset);
  // The first elements stay in registers, those of very wide rows are read again.
  float kept[KEPT];
  float squares = 0.0;
  [[unroll]] for (uint n = 0; n < KEPT; n++) {
    const uint i = n * WG + at;
    kept[n] = 0.0;
    if (i < p.width) {
      kept[n] = x.v[i];
      if (ADD != 0) {
        kept[n] += b.v[i];
        total.v[i] = kept[n];
      }
      squares += kept[n] * kept[n];
    }
  }
  for (uint i = KEPT * WG + at; i < p.width; i += WG) {
    float value = x.v[i];
    if (ADD != 0) {
      value += b.v[i];
      total.v[i] = value;
    }
    squares += value * value;
  }
  const float inverse = 1.0 / sqrt(group_sum(squares) / float(p.width) + p.eps);
  [[unroll]] for (uint n = 0; n < KEPT; n++) {
    const uint i = n * WG + at;
    if (i < p.width) { y.v[i] = kept[n] * inverse * optional_at(p.w, p.counts, i, 1.0); }
  }
  for (uint i = KEPT * WG + at; i < p.width; i += WG) {
    const float value = ADD != 0 ? x.v[i] + b.v[i] : x.v[i];
    y.v[i] = value * inverse * optional_at(p.w, p.counts, i, 1.0);
  }
}
