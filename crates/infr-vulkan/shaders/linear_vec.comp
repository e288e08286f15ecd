#include "lib/prelude.glsl"
#include "lib/math.glsl"
#include "quant"
// Matrix times few rows: y[r][o] = scale * sum_i w[o][i] x[r][i] + bias[o], or a gated activation of two
// such products. Weights are decoded in registers and read once for all rows of a workgroup.
//
// A team of whole subgroups computes a pair of outputs (or the gate and the up product of one output), so that x
// is read once for both. Lanes stride over the units of a matrix row; a lane's sum runs over its units in order.
// Spec: 0 workgroup size, 1 outputs of a workgroup, 2 rows of a workgroup, 3 activation + 1 or 0.
layout(constant_id = 1) const uint OUTS = 2;
layout(constant_id = 2) const uint COLS = 1;
layout(constant_id = 3) const uint ACT = 0;
layout(push_constant, scalar) uniform Push {
  uint64_t counts, x, w, y, bias, scale, up, up_bias;
  uint inner, outer, count;
} p;

// Pairs of matrix rows per workgroup; with an activation a pair makes one output.
const uint PAIRS = ACT != 0 ? OUTS : (OUTS + 1) / 2;

const uint SUMS = 2 * COLS;

shared float partial[WG / 4 * SUMS];

// Of this invocation: the batch rows, the pair of matrix rows, and the sums [matrix row][batch row].
uint64_t x[COLS];
uint64_t w[2];
float sums[SUMS];

// Adds the products of a lane's units with every batch row.
void add_units(uint first, uint step) {
  const uint units = p.inner / UNIT;
  for (uint base = first; base < units; base += step * IN_FLIGHT) {
    Raw raw[2 * IN_FLIGHT];
    [[unroll]] for (uint n = 0; n < IN_FLIGHT; n++) {
      const uint unit = min(base + n * step, units - 1);
      raw[2 * n] = unit_load(w[0], unit);
      raw[2 * n + 1] = unit_load(w[1], unit);
    }
    [[unroll]] for (uint n = 0; n < IN_FLIGHT; n++) {
      const uint unit = base + n * step;
      if (unit < units) {
        [[unroll]] for (uint k = 0; k < UNIT / 4; k++) {
          const vec4 a = unit_get(raw[2 * n], unit, k), b = unit_get(raw[2 * n + 1], unit, k);
          const uint at = unit_elem(unit, k) / 4;
          [[unroll]] for (uint c = 0; c < COLS; c++) {
            const vec4 v = F32x4(x[c]).v[at];
            sums[c] += dot(a, v);
            sums[COLS + c] += dot(b, v);
          }
        }
      }
    }
  }
}

#ifdef PLAIN
// The same element by element, for rows that are no whole units.
void add_elements(uint first, uint step) {
  for (uint i = first; i < p.inner; i += step) {
    const float a = one_get(w[0], i), b = one_get(w[1], i);
    [[unroll]] for (uint c = 0; c < COLS; c++) {
      const float v = F32(x[c]).v[i];
      sums[c] += a * v;
      sums[COLS + c] += b * v;
    }
  }
}
#endif

void store(uint row, uint out_idx, float first, float second) {
  F32 y = F32(row_at(p.y, row, p.outer));
  if (ACT != 0) {
    const float gate = first + optional_at(p.bias, p.counts, out_idx, 0.0);
    const float up = second + optional_at(p.up_bias, p.counts, out_idx, 0.0);
    y.v[out_idx] = gate_act(ACT - 1, gate, up);
    return;
  }
  const float scale = optional_at(p.scale, p.counts, 0, 1.0);
  y.v[out_idx] = first * scale + optional_at(p.bias, p.counts, out_idx, 0.0);
  if (out_idx + 1 < p.outer && (OUTS > 1)) {
    y.v[out_idx + 1] = second * scale + optional_at(p.bias, p.counts, out_idx + 1, 0.0);
  }
}

void main() {
  const uint rows = count_at(p.counts, p.count), row0 = gl_WorkGroupID.y * COLS;
  const uint first_out = flat_group() * OUTS;
  if (row0 >= rows || first_out >= p.outer) { return; }
  // Teams: subgroups that share a pair. Both numbers are powers of two, or there is one subgroup per team.
  const uint team_size = max(gl_NumSubgroups / PAIRS, 1), teams = gl_NumSubgroups / team_size;
  const uint team = gl_SubgroupID / team_size, member = gl_SubgroupID % team_size;
  const uint step = team_size * gl_SubgroupSize, first = member * gl_SubgroupSize + gl_SubgroupInvocationID;
  const uint outs_per_pair = ACT != 0 || OUTS == 1 ? 1 : 2;
  [[unroll]] for (uint c = 0; c < COLS; c++) { x[c] = row_at(p.x, min(row0 + c, rows - 1), p.inner); }
  for (uint pair0 = 0; pair0 < PAIRS; pair0 += teams) {
    const uint pair = pair0 + team, out_idx = first_out + pair * outs_per_pair;
    const bool mine = team < teams && pair < PAIRS && out_idx < p.outer;
    [[unroll]] for (uint i = 0; i < SUMS; i++) { sums[i] = 0.0; }
    if (mine) {
      w[0] = p.w + uint64_t(out_idx) * row_bytes(p.inner);
      w[1] = w[0];
      if (ACT != 0) { w[1] = p.up + uint64_t(out_idx) * row_bytes(p.inner); }
      else if (outs_per_pair == 2 && out_idx + 1 < p.outer) { w[1] = w[0] + row_bytes(p.inner); }
#ifdef PLAIN
      if (p.inner % UNIT != 0) { add_elements(first, step); }
      else
#endif
      { add_units(first, step); }
    }
    [[unroll]] for (uint i = 0; i < SUMS; i++) { sums[i] = subgroupAdd(sums[i]); }
    if (team_size == 1) {
      if (mine && gl_SubgroupInvocationID == 0) {
        [[unroll]] for (uint c = 0; c < COLS; c++) {
          if (row0 + c < rows) { store(row0 + c, out_idx, sums[c], sums[COLS + c]); }
        }
      }
      continue;
    }
    barrier();
    if (gl_SubgroupInvocationID == 0) {
      [[unroll]] for (uint i = 0; i < SUMS; i++) { partial[gl_SubgroupID * SUMS + i] = sums[i]; }
    }
    barrier();
    if (mine && member == 0) {
      for (uint c = gl_SubgroupInvocationID; c < COLS && row0 + c < rows; c += gl_SubgroupSize) {
        float a = 0.0, b = 0.0;
        for (uint s = gl_SubgroupID; s < gl_SubgroupID + team_size; s++) {
          a += partial[s * SUMS + c];
          b += partial[s * SUMS + COLS + c];
        }
        store(row0 + c, out_idx, a, b);
      }
    }
  }
}
