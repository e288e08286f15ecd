#include "lib/prelude.glsl"
#include "lib/math.glsl"
#include "lib/pool.glsl"
#include "lib/page.glsl"
// Softmax attention of one query head over a tile of rows of one sequence (Dao et al., "FlashAttention", 2022).
//
// Cache tile by cache tile: scores and weighted values are small matrix products through shared memory, where an
// invocation holds 4 rows by 4 columns. Keys pass in chunks of 32 elements, values in chunks of 64 elements of half
// a tile. A cache tile that a row does not see leaves the row's sums as they are.
// Spec: 0 workgroup size = 4 * q_tile, 1 pool precision, 2 cache rows of a tile (64), 3 rows of a query tile,
// 4 elements of a key head, 5 of a value head.
layout(constant_id = 1) const uint KV = 0;
layout(constant_id = 2) const uint TILE = 64;
layout(constant_id = 3) const uint Q_TILE = 32;
layout(constant_id = 4) const uint KEY_DIM = 64;
layout(constant_id = 5) const uint VALUE_DIM = 64;
layout(push_constant, scalar) uniform Push {
  uint64_t counts, q, k_pool, v_pool, tables, row_slots, visible, tiles, y, sinks;
  uint heads, kv_heads, stride, page_len;
  float scale, softcap;
} p;

const uint KEY_CHUNK = 32;
const uint VALUE_CHUNK = 64;
const uint VALUE_CHUNKS = (VALUE_DIM + VALUE_CHUNK - 1) / VALUE_CHUNK;
const bool VECTORS = (KEY_DIM | VALUE_DIM) % 8 == 0;

// Scores [row][cache row], later weights.
shared float scores[Q_TILE * (TILE + 1)];
// Queries [row][element of the chunk].
shared float q_chunk[Q_TILE * (KEY_CHUNK + 1)];
// Keys [cache row][element of the chunk], or values [cache row of the half][element of the chunk].
shared float kv_chunk[TILE * (KEY_CHUNK + 1)];
shared uint physical[TILE];
shared uvec2 ranges[Q_TILE];
shared float best[Q_TILE];
shared float total[Q_TILE];
shared float keep[Q_TILE];

// Stages keys of the cache rows from .. to; others are zero.
void stage_keys(uint chunk, uint from, uint to, uint kv_head) {
  const uint at = gl_LocalInvocationIndex;
  if (VECTORS) {
    for (uint i = at; i < TILE * KEY_CHUNK / 8; i += WG) {
      const uint r = i / (KEY_CHUNK / 8), e = i % (KEY_CHUNK / 8) * 8, element = chunk + e;
      vec4 a = vec4(0.0), b = vec4(0.0);
      if (r >= from && r < to && element < KEY_DIM) {
        pool_load8(pool_at(p.k_pool, KV, physical[r], p.kv_heads * KEY_DIM, kv_head * KEY_DIM), KV, element / 8, a, b);
      }
      [[unroll]] for (uint j = 0; j < 4; j++) {
        kv_chunk[r * (KEY_CHUNK + 1) + e + j] = a[j];
        kv_chunk[r * (KEY_CHUNK + 1) + e + 4 + j] = b[j];
      }
    }
    return;
  }
  for (uint i = at; i < TILE * KEY_CHUNK; i += WG) {
    const uint r = i / KEY_CHUNK, e = i % KEY_CHUNK, element = chunk + e;
    float value = 0.0;
    if (r >= from && r < to && element < KEY_DIM) {
      value = pool_load(pool_at(p.k_pool, KV, physical[r], p.kv_heads * KEY_DIM, kv_head * KEY_DIM), KV, element);
    }
    kv_chunk[r * (KEY_CHUNK + 1) + e] = value;
  }
}

// Stages values of the cache rows half_start .. half_start + TILE / 2 that lie in from .. to.
void stage_values(uint chunk, uint half_start, uint from, uint to, uint kv_head) {
  const uint at = gl_LocalInvocationIndex;
  if (VECTORS) {
    for (uint i = at; i < TILE / 2 * VALUE_CHUNK / 8; i += WG) {
      const uint h = i / (VALUE_CHUNK / 8), e = i % (VALUE_CHUNK / 8) * 8, r = half_start + h, element = chunk + e;
      vec4 a = vec4(0.0), b = vec4(0.0);
      if (r >= from && r < to && element < VALUE_DIM) {
        pool_load8(pool_at(p.v_pool, KV, physical[r], p.kv_heads * VALUE_DIM, kv_head * VALUE_DIM), KV, element / 8, a, b);
      }
      [[unroll]] for (uint j = 0; j < 4; j++) {
        kv_chunk[h * VALUE_CHUNK + e + j] = a[j];
        kv_chunk[h * VALUE_CHUNK + e + 4 + j] = b[j];
      }
    }
    return;
  }
  for (uint i = at; i < TILE / 2 * VALUE_CHUNK; i += WG) {
    const uint h = i / VALUE_CHUNK, e = i % VALUE_CHUNK, r = half_start + h, element = chunk + e;
    float value = 0.0;
    if (r >= from && r < to && element < VALUE_DIM) {
      value = pool_load(pool_at(p.v_pool, KV, physical[r], p.kv_heads * VALUE_DIM, kv_head * VALUE_DIM), KV, element);
    }
    kv_chunk[h * VALUE_CHUNK + e] = value;
  }
}

// Scores of all rows with a cache tile; rows see what their range says.
void score_tile(uint start, uint from, uint to, uint row0, uint n_rows, uint head, uint kv_head) {
  const uint at = gl_LocalInvocationIndex, r0 = at / 16 * 4, c0 = at % 16;
  float sums[16];
  [[unroll]] for (uint i = 0; i < 16; i++) { sums[i] = 0.0; }
  for (uint chunk = 0; chunk < KEY_DIM; chunk += KEY_CHUNK) {
    barrier();
    for (uint i = at; i < Q_TILE * KEY_CHUNK; i += WG) {
      const uint r = i / KEY_CHUNK, e = i % KEY_CHUNK;
      float value = 0.0;
      if (r < n_rows && chunk + e < KEY_DIM) {
        value = F32(row_at(p.q, (row0 + r) * p.heads + head, KEY_DIM)).v[chunk + e];
      }
      q_chunk[r * (KEY_CHUNK + 1) + e] = value;
    }
    stage_keys(chunk, from, to, kv_head);
    barrier();
    for (uint e = 0; e < KEY_CHUNK; e++) {
      float a[4], b[4];
      [[unroll]] for (uint i = 0; i < 4; i++) {
        a[i] = q_chunk[(r0 + i) * (KEY_CHUNK + 1) + e];
        b[i] = kv_chunk[(c0 + 16 * i) * (KEY_CHUNK + 1) + e];
      }
      [[unroll]] for (uint i = 0; i < 16; i++) { sums[i] += a[i / 4] * b[i % 4]; }
    }
  }
  [[unroll]] for (uint i = 0; i < 16; i++) {
    const uint r = r0 + i / 4, c = c0 + 16 * (i % 4);
    float score = sums[i] * p.scale;
    if (p.softcap > 0.0) { score = p.softcap * tanh_f32(score / p.softcap); }
    const bool seen = start + c >= ranges[r].x && start + c < ranges[r].y;
    scores[r * (TILE + 1) + c] = seen ? score : MINUS_INF;
  }
}

// Turns scores into weights; four invocations per row, neighbours in a subgroup.
void weigh() {
  const uint lane = lane_index(), r = lane / 4, part = lane % 4;
  float mine = MINUS_INF;
  for (uint c = part; c < TILE; c += 4) { mine = max(mine, scores[r * (TILE + 1) + c]); }
  const float old = best[r], next = max(old, subgroupClusteredMax(mine, 4));
  float sum = 0.0;
  for (uint c = part; c < TILE; c += 4) {
    const float score = scores[r * (TILE + 1) + c];
    const float weight = score == MINUS_INF ? 0.0 : exp_f32(score - next);
    scores[r * (TILE + 1) + c] = weight;
    sum += weight;
  }
  sum = subgroupClusteredAdd(sum, 4);
  subgroupBarrier();
  if (part == 0) {
    const float factor = old == next ? 1.0 : (old == MINUS_INF ? 0.0 : exp_f32(old - next));
    keep[r] = factor;
    best[r] = next;
    total[r] = total[r] * factor + sum;
  }
}

void main() {
  const uint at = gl_LocalInvocationIndex, head = gl_WorkGroupID.x, tile_idx = gl_WorkGroupID.y;
  if (tile_idx >= count_at(p.counts, COUNT_TILES)) { return; }
  const uvec2 tile = U32x2(p.tiles).v[tile_idx];
  const uint row0 = tile.x, n_rows = min(tile.y, Q_TILE), kv_head = head / (p.heads / p.kv_heads);
  for (uint r = at; r < Q_TILE; r += WG) {
    uvec2 range = uvec2(0, 0);
    if (r < n_rows) { range = U32x2(p.visible).v[row0 + r]; }
    ranges[r] = range.x < range.y ? range : uvec2(0, 0);
    best[r] = MINUS_INF;
    total[r] = 0.0;
  }
  barrier();
  uint lo = 0xffffffffu, hi = 0;
  for (uint r = 0; r < n_rows; r++) {
    if (ranges[r].x < ranges[r].y) {
      lo = min(lo, ranges[r].x);
      hi = max(hi, ranges[r].y);
    }
  }
  const Pages pages = pages_of(p.tables, U32(p.row_slots).v[row0], p.stride, p.page_len & 0xffffu);
  const uint r0 = at / 16 * 4, c0 = at % 16;
  float sums[VALUE_CHUNKS * 16];
  [[unroll]] for (uint i = 0; i < VALUE_CHUNKS * 16; i++) { sums[i] = 0.0; }
  for (uint start = lo / TILE * TILE; start < hi; start += TILE) {
    const uint from = max(lo, start) - start, to = min(hi - start, TILE);
    barrier();
    for (uint r = from + at; r < to; r += WG) { physical[r] = physical_row(pages, start + r); }
    score_tile(start, from, to, row0, n_rows, head, kv_head);
    barrier();
    weigh();
    barrier();
    float factor[4];
    [[unroll]] for (uint i = 0; i < 4; i++) { factor[i] = keep[r0 + i]; }
    [[unroll]] for (uint n = 0; n < VALUE_CHUNKS; n++) {
      [[unroll]] for (uint i = 0; i < 16; i++) { sums[n * 16 + i] *= factor[i / 4]; }
      for (uint half_start = 0; half_start < TILE; half_start += TILE / 2) {
        barrier();
        stage_values(n * VALUE_CHUNK, half_start, from, to, kv_head);
        barrier();
        for (uint h = 0; h < TILE / 2; h++) {
          float a[4], b[4];
          [[unroll]] for (uint i = 0; i < 4; i++) {
            a[i] = scores[(r0 + i) * (TILE + 1) + half_start + h];
            b[i] = kv_chunk[h * VALUE_CHUNK + c0 + 16 * i];
          }
          [[unroll]] for (uint i = 0; i < 16; i++) { sums[n * 16 + i] += a[i / 4] * b[i % 4]; }
        }
      }
    }
  }
  barrier();
  [[unroll]] for (uint i = 0; i < 4; i++) {
    const uint r = r0 + i;
    if (r >= n_rows) { continue; }
    const float m = best[r];
    float whole = total[r], factor = 1.0;
    if (p.sinks != 0ul && m > MINUS_INF) {
      const float sink = optional_at(p.sinks, p.counts, head, 0.0), next = max(m, sink);
      factor = exp_f32(m - next);
      whole = whole * factor + exp_f32(sink - next);
    }
    factor = whole > 0.0 ? factor / whole : 0.0;
    F32 y = F32(row_at(p.y, (row0 + r) * p.heads + head, VALUE_DIM));
    [[unroll]] for (uint n = 0; n < VALUE_CHUNKS; n++) {
      [[unroll]] for (uint j = 0; j < 4; j++) {
        const uint element = n * VALUE_CHUNK + c0 + 16 * j;
        if (element < VALUE_DIM) { y.v[element] = sums[n * 16 + i * 4 + j] * factor; }
      }
    }
  }
}
