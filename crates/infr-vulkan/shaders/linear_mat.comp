#include "lib/prelude.glsl"
#include "lib/math.glsl"
#include "quant"
// Matrix times many rows, as `linear_vec`. A workgroup makes a tile of outputs and rows: it stages 32 elements of
// the tile's matrix rows and batch rows in shared memory, element by element in the order of the type's units;
// an invocation adds up 8 outputs of 8 rows.
// Spec: 0 workgroup size = tile_outs * tile_rows / 64, 1 outputs of a tile, 2 rows of a tile, 3 activation + 1 or 0.
layout(constant_id = 1) const uint TILE_OUTS = 64;
layout(constant_id = 2) const uint TILE_ROWS = 64;
layout(constant_id = 3) const uint ACT = 0;
layout(push_constant, scalar) uniform Push {
  uint64_t counts, x, w, y, bias, scale, up, up_bias;
  uint inner, outer, count;
} p;

const uint STEP = 32;
const uint UNITS = STEP / UNIT;

shared vec4 w_tile[STEP * TILE_OUTS / 4];
shared vec4 x_tile[STEP * TILE_ROWS / 4];

void put_w(uint element, uint o, float value) { w_tile[(element * TILE_OUTS + o) / 4][o % 4] = value; }
void put_x(uint element, uint r, float value) { x_tile[(element * TILE_ROWS + r) / 4][r % 4] = value; }

// Stages whole units.
void stage_units(uint64_t w, uint base, uint first_out, uint row0, uint rows) {
  const uint units = p.inner / UNIT;
  for (uint i = gl_LocalInvocationIndex; i < TILE_OUTS * UNITS; i += WG) {
    const uint o = i % TILE_OUTS, n = i / TILE_OUTS, unit = base / UNIT + n;
    const bool inside = unit < units && first_out + o < p.outer;
    Raw raw;
    if (inside) { raw = unit_load(w + uint64_t(first_out + o) * row_bytes(p.inner), unit); }
    [[unroll]] for (uint k = 0; k < UNIT / 4; k++) {
      const vec4 v = inside ? unit_get(raw, unit, k) : vec4(0.0);
      [[unroll]] for (uint e = 0; e < 4; e++) { put_w(n * UNIT + k * 4 + e, o, v[e]); }
    }
  }
  for (uint i = gl_LocalInvocationIndex; i < TILE_ROWS * STEP / 4; i += WG) {
    const uint r = i % TILE_ROWS, at = i / TILE_ROWS, unit = base / UNIT + at / (UNIT / 4);
    vec4 v = vec4(0.0);
    if (unit < units && row0 + r < rows) {
      v = F32x4(row_at(p.x, row0 + r, p.inner)).v[unit_elem(unit, at % (UNIT / 4)) / 4];
    }
    [[unroll]] for (uint e = 0; e < 4; e++) { put_x(at * 4 + e, r, v[e]); }
  }
}

#ifdef PLAIN
// Stages element by element, for rows that are no whole units.
void stage_elements(uint64_t w, uint base, uint first_out, uint row0, uint rows) {
  for (uint i = gl_LocalInvocationIndex; i < TILE_OUTS * STEP; i += WG) {
    const uint o = i / STEP, e = i % STEP;
    const bool inside = base + e < p.inner && first_out + o < p.outer;
    put_w(e, o, inside ? one_get(w + uint64_t(first_out + o) * row_bytes(p.inner), base + e) : 0.0);
  }
  for (uint i = gl_LocalInvocationIndex; i < TILE_ROWS * STEP; i += WG) {
    const uint r = i / STEP, e = i % STEP;
    const bool inside = base + e < p.inner && row0 + r < rows;
    put_x(e, r, inside ? F32(row_at(p.x, row0 + r, p.inner)).v[base + e] : 0.0);
  }
}
#endif

// One product of the tile: sums[row of 8][outputs 0..3 and 4..7].
void product(uint64_t w, uint first_out, uint row0, uint rows, inout vec4 sums[16]) {
  const uint o4 = gl_LocalInvocationIndex % (TILE_OUTS / 8) * 2, r4 = gl_LocalInvocationIndex / (TILE_OUTS / 8) * 2;
  for (uint base = 0; base < p.inner; base += STEP) {
    barrier();
#ifdef PLAIN
    if (p.inner % UNIT != 0) { stage_elements(w, base, first_out, row0, rows); }
    else
#endif
    { stage_units(w, base, first_out, row0, rows); }
    barrier();
    for (uint e = 0; e < STEP; e++) {
      const vec4 w0 = w_tile[e * (TILE_OUTS / 4) + o4], w1 = w_tile[e * (TILE_OUTS / 4) + o4 + 1];
      const vec4 x0 = x_tile[e * (TILE_ROWS / 4) + r4], x1 = x_tile[e * (TILE_ROWS / 4) + r4 + 1];
      [[unroll]] for (uint r = 0; r < 4; r++) {
        sums[2 * r] += w0 * x0[r];
        sums[2 * r + 1] += w1 * x0[r];
        sums[8 + 2 * r] += w0 * x1[r];
        sums[8 + 2 * r + 1] += w1 * x1[r];
      }
    }
  }
}

void main() {
  const uint rows = count_at(p.counts, p.count), row0 = gl_WorkGroupID.y * TILE_ROWS;
  const uint first_out = flat_group() * TILE_OUTS;
  if (row0 >= rows || first_out >= p.outer) { return; }
  vec4 sums[16], up_sums[16];
  [[unroll]] for (uint i = 0; i < 16; i++) { sums[i] = vec4(0.0); up_sums[i] = vec4(0.0); }
  product(p.w, first_out, row0, rows, sums);
  if (ACT != 0) { product(p.up, first_out, row0, rows, up_sums); }
  const uint o0 = first_out + gl_LocalInvocationIndex % (TILE_OUTS / 8) * 8;
  const uint r0 = row0 + gl_LocalInvocationIndex / (TILE_OUTS / 8) * 8;
  const float scale = optional_at(p.scale, p.counts, 0, 1.0);
  [[unroll]] for (uint i = 0; i < 64; i++) {
    const uint row = r0 + i / 8, o = o0 + i % 8;
    if (row >= rows || o >= p.outer) { continue; }
    float value = sums[i / 4][i % 4] * scale + optional_at(p.bias, p.counts, o, 0.0);
    if (ACT != 0) {
      const float up = up_sums[i / 4][i % 4] + optional_at(p.up_bias, p.counts, o, 0.0);
      value = gate_act(ACT - 1, value, up);
    }
    F32(row_at(p.y, row, p.outer)).v[o] = value;
  }
}
