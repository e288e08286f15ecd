#include "lib/prelude.glsl"
#include "lib/math.glsl"
#include "lib/reduce.glsl"
#include "lib/pool.glsl"
#include "lib/page.glsl"
// Softmax attention of one row and one KV head with all query heads that read it, over one split of the context
// (online softmax: Milakov and Gimelshein, 2018; split context: Dao et al., "Flash-Decoding", 2023).
//
// Tile by tile: four neighbouring lanes compute the scores of a cache row with up to HEADS query heads; the maximum
// is brought up to date; invocations that hold eight value elements each add up the weighted values.
// More query heads than HEADS per KV head are done one group after the other.
// Spec: 0 workgroup size, 1 pool precision, 2 cache rows of a tile, 3 elements of a key head, 4 of a value head.
layout(constant_id = 1) const uint KV = 0;
layout(constant_id = 2) const uint TILE = 64;
layout(constant_id = 3) const uint KEY_DIM = 64;
layout(constant_id = 4) const uint VALUE_DIM = 64;
layout(push_constant, scalar) uniform Push {
  uint64_t counts, q, k_pool, v_pool, tables, row_slots, visible, o, sinks;
  uint heads, kv_heads, stride, page_splits;
  float scale, softcap;
} p;

const uint HEADS = 8;
// Lanes that share a cache row when scores are computed.
const uint SHARERS = 4;
// Value elements of an invocation.
const uint VEC = VALUE_DIM % 8 == 0 ? 8 : 1;
const uint VALUE_LANES = VALUE_DIM / VEC;
const bool KEY_VECTORS = KEY_DIM % 8 == 0;

shared float q_shared[HEADS * KEY_DIM];
shared float scores[HEADS * TILE];
shared uint physical[TILE];
shared float merged[WG * VEC];

// Weighted values of this invocation: [head][element].
const uint SUMS = HEADS * VEC;
float sums[SUMS];

// Adds the weighted values of every `step`-th of the cache rows from .. to, elements `element` on.
void add_values(uint n_heads, uint from, uint to, uint step, uint element, uint kv_head) {
  for (uint r = from; r < to; r += step) {
    const uint64_t at = pool_at(p.v_pool, KV, physical[r], p.kv_heads * VALUE_DIM, kv_head * VALUE_DIM);
    if (VEC == 8) {
      vec4 a, b;
      pool_load8(at, KV, element / 8, a, b);
      [[unroll]] for (uint h = 0; h < HEADS; h++) {
        if (h < n_heads) {
          const float weight = scores[h * TILE + r];
          [[unroll]] for (uint e = 0; e < 4; e++) {
            sums[h * VEC + e % VEC] += weight * a[e];
            sums[h * VEC + (4 + e) % VEC] += weight * b[e];
          }
        }
      }
    } else {
      const float value = pool_load(at, KV, element);
      [[unroll]] for (uint h = 0; h < HEADS; h++) {
        if (h < n_heads) { sums[h * VEC] += scores[h * TILE + r] * value; }
      }
    }
  }
}

// Scores of the tile's rows from .. to with every head of the group.
void score_tile(uint n_heads, uint from, uint to, uint kv_head) {
  const uint lane = lane_index(), part = lane % SHARERS;
  for (uint base = from; base < to; base += WG / SHARERS) {
    const uint r = base + lane / SHARERS;
    float dots[HEADS];
    [[unroll]] for (uint h = 0; h < HEADS; h++) { dots[h] = 0.0; }
    if (r < to) {
      const uint64_t at = pool_at(p.k_pool, KV, physical[r], p.kv_heads * KEY_DIM, kv_head * KEY_DIM);
      if (KEY_VECTORS) {
        for (uint i = part; i < KEY_DIM / 8; i += SHARERS) {
          vec4 a, b;
          pool_load8(at, KV, i, a, b);
          [[unroll]] for (uint h = 0; h < HEADS; h++) {
            if (h < n_heads) {
              [[unroll]] for (uint e = 0; e < 4; e++) {
                dots[h] += a[e] * q_shared[h * KEY_DIM + i * 8 + e];
                dots[h] += b[e] * q_shared[h * KEY_DIM + i * 8 + 4 + e];
              }
            }
          }
        }
      } else {
        for (uint i = part; i < KEY_DIM; i += SHARERS) {
          const float key = pool_load(at, KV, i);
          [[unroll]] for (uint h = 0; h < HEADS; h++) {
            if (h < n_heads) { dots[h] += key * q_shared[h * KEY_DIM + i]; }
          }
        }
      }
    }
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
      if (h < n_heads) {
        float score = subgroupClusteredAdd(dots[h], SHARERS) * p.scale;
        if (p.softcap > 0.0) { score = p.softcap * tanh_f32(score / p.softcap); }
        if (r < to && part == 0) { scores[h * TILE + r] = score; }
      }
    }
  }
}

// All tiles of the split for `n_heads` heads from `head0` on.
void attend(uint head0, uint n_heads, uint kv_head, uint row, uvec2 range, Pages pages) {
  const uint at = gl_LocalInvocationIndex, splits = p.page_splits >> 16, split = gl_WorkGroupID.z;
  barrier();
  for (uint i = at; i < n_heads * KEY_DIM; i += WG) {
    q_shared[i] = F32(row_at(p.q, row * p.heads + head0, KEY_DIM)).v[i];
  }
  // Invocations above the whole number of value rows add nothing.
  const uint value_rows = WG / VALUE_LANES, value_row = at / VALUE_LANES, element = at % VALUE_LANES * VEC;
  // Softmax: HEADS groups of invocations, one per head.
  const uint group = WG / HEADS, head = at / group, member = at % group;
  [[unroll]] for (uint i = 0; i < SUMS; i++) { sums[i] = 0.0; }
  float best[HEADS], total = 0.0;
  [[unroll]] for (uint h = 0; h < HEADS; h++) { best[h] = MINUS_INF; }
  for (uint tile = range.x / TILE; tile * TILE < range.y; tile++) {
    if (tile % splits != split) { continue; }
    const uint start = tile * TILE;
    const uint from = max(range.x, start) - start, to = min(range.y - start, TILE);
    barrier();
    for (uint r = from + at; r < to; r += WG) { physical[r] = physical_row(pages, start + r); }
    barrier();
    score_tile(n_heads, from, to, kv_head);
    barrier();
    float tile_best[HEADS];
    [[unroll]] for (uint h = 0; h < HEADS; h++) { tile_best[h] = MINUS_INF; }
    if (head < n_heads) {
      float mine = MINUS_INF;
      for (uint r = from + member; r < to; r += group) { mine = max(mine, scores[head * TILE + r]); }
      merged[at] = mine;
    }
    barrier();
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
      if (h < n_heads) {
        float next = best[h];
        for (uint i = 0; i < group; i++) { next = max(next, merged[h * group + i]); }
        const float keep = best[h] == MINUS_INF ? 0.0 : exp_f32(best[h] - next);
        best[h] = next;
        [[unroll]] for (uint e = 0; e < VEC; e++) { sums[h * VEC + e] *= keep; }
        if (h == head) {
          total *= keep;
          for (uint r = from + member; r < to; r += group) {
            const float weight = next == MINUS_INF ? 0.0 : exp_f32(scores[h * TILE + r] - next);
            scores[h * TILE + r] = weight;
            total += weight;
          }
        }
      }
    }
    barrier();
    if (value_row < value_rows) {
      add_values(n_heads, from + value_row, to, value_rows, element, kv_head);
    }
  }
  // Join the value rows and the totals, head by head.
  for (uint h = 0; h < n_heads; h++) {
    float mine[VEC];
    [[unroll]] for (uint e = 0; e < VEC; e++) { mine[e] = 0.0; }
    float m = MINUS_INF;
    [[unroll]] for (uint g = 0; g < HEADS; g++) {
      if (g == h) {
        m = best[g];
        [[unroll]] for (uint e = 0; e < VEC; e++) { mine[e] = sums[g * VEC + e]; }
      }
    }
    float whole = group_sum(h == head ? total : 0.0);
    barrier();
    if (value_row < value_rows) {
      [[unroll]] for (uint e = 0; e < VEC; e++) { merged[value_row * VALUE_DIM + element + e] = mine[e]; }
    }
    barrier();
    float factor = 1.0;
    if (splits == 1) {
      if (p.sinks != 0ul && m > MINUS_INF) {
        const float sink = optional_at(p.sinks, p.counts, head0 + h, 0.0), next = max(m, sink);
        factor = exp_f32(m - next);
        whole = whole * factor + exp_f32(sink - next);
      }
      factor = whole > 0.0 ? factor / whole : 0.0;
    }
    const uint out_row = row * p.heads + head0 + h;
    F32 result = splits == 1 ? F32(row_at(p.o, out_row, VALUE_DIM))
                             : F32(p.o + (uint64_t(out_row) * uint64_t(splits) + uint64_t(split)) * uint64_t(VALUE_DIM + 2) * 4ul);
    for (uint i = at; i < VALUE_DIM; i += WG) {
      float sum = 0.0;
      for (uint r = 0; r < value_rows; r++) { sum += merged[r * VALUE_DIM + i]; }
      result.v[i] = sum * factor;
    }
    if (splits > 1 && at == 0) {
      result.v[VALUE_DIM] = m;
      result.v[VALUE_DIM + 1] = whole;
    }
  }
}

void main() {
  const uint row = gl_WorkGroupID.y, kv_head = gl_WorkGroupID.x;
  if (row >= count_at(p.counts, COUNT_ROWS)) { return; }
  const uint per_kv = p.heads / p.kv_heads;
  const uvec2 range = U32x2(p.visible).v[row];
  const Pages pages = pages_of(p.tables, U32(p.row_slots).v[row], p.stride, p.page_splits & 0xffffu);
  for (uint first = 0; first < per_kv; first += HEADS) {
    attend(kv_head * per_kv + first, min(HEADS, per_kv - first), kv_head, row, range, pages);
  }
}
