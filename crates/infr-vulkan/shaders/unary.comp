#include "lib/prelude.glsl"
#include "lib/math.glsl"
// A function of each element. Spec: 0 workgroup size, 1 function.
layout(constant_id = 1) const uint FUNC = 0;
layout(push_constant, scalar) uniform Push { uint64_t counts, x, y; uint width; float param; uint count; } p;

float apply(float x) {
  switch (FUNC) {
    case 0: return x * sigmoid_f32(x);
    case 1: return gelu_f32(x);
    case 2: return sigmoid_f32(x);
    case 3: return tanh_f32(x);
    case 4: return softplus_f32(x);
    case 5: return exp_f32(x);
    case 6: return x * p.param;
    case 7: return p.param * tanh_f32(x / p.param);
    default: return x;
  }
}

void main() {
  const uint row = gl_WorkGroupID.y, i = gl_WorkGroupID.x * WG + gl_LocalInvocationIndex;
  if (row >= count_at(p.counts, p.count) || i >= p.width) { return; }
  F32(row_at(p.y, row, p.width)).v[i] = apply(F32(row_at(p.x, row, p.width)).v[i]);
}
