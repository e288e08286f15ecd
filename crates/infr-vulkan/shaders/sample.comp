#include "lib/prelude.glsl"
#include "lib/math.glsl"
#include "lib/bits.glsl"
#include "lib/reduce.glsl"
// Draws one token per output row as `draw` of `infr-backend/src/sample.rs` does; one workgroup per row.
//
// Candidates in descending order are never sorted: a position in that order (by count for top-k, by probability
// mass for top-p and the draw) is found digit by digit in the order-preserving integer form of a logit, from
// histograms. Masses are integers (39 bits), so that sums do not depend on the order of atomic additions.
// Spec: 0 workgroup size, at least 256.
layout(push_constant, scalar) uniform Push {
  uint64_t counts, logits, params, last, results, ids;
  uint vocab;
} p;

struct Params {
  float temperature;
  uint top_k;
  float top_p, min_p, uniform_number;
  uint slot, flags, unused;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer ParamRows { Params v[]; };

shared uint bin_count[256];
shared uint bin_mass[256 * 3];
shared uint64_t found_mass;
shared uint found_digit;
shared float group_value[WG / 4];
shared uint group_id[WG / 4];

// The candidates that a stage looks at: those before `end` in descending order.
struct Kept {
  // Smallest key that is kept, and how many tokens with just that key (the first by id).
  uint key, ties;
};

// Unsigned integers in the order of the logits; 0 for what never is a candidate.
uint key_of(float logit) {
  if (is_nan(logit) || floatBitsToUint(logit) == 0xff800000u) { return 0; }
  const uint bits = floatBitsToUint(logit);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

float logit_of(uint key) { return uintBitsToFloat((key >> 31) != 0 ? key & 0x7fffffffu : ~key); }

// A probability up to 1 in units of 2^-39, as three digits of 13 bits (the first may be 2^13).
uvec3 mass_digits(float x) {
  const float a = x * 8192.0, high = floor(a), b = (a - high) * 8192.0, middle = floor(b);
  return uvec3(uint(high), uint(middle), uint((b - middle) * 8192.0));
}
uint64_t mass_sum(uvec3 digits) {
  return (uint64_t(digits.x) << 26) + (uint64_t(digits.y) << 13) + uint64_t(digits.z);
}

// Finds the first position of the kept candidates where the count (`by_mass` false) reaches `target`, or the mass
// exp((logit - top) * rate) does. Returns its key, and in `ties` the number of its tokens needed.
Kept find(F32 logits, Kept kept, bool by_mass, uint64_t target, float top, float rate) {
  const uint at = gl_LocalInvocationIndex;
  uint prefix = 0;
  uint64_t before = 0ul;
  for (int shift = 24; shift >= 0; shift -= 8) {
    barrier();
    for (uint i = at; i < 256; i += WG) {
      bin_count[i] = 0;
      bin_mass[3 * i] = 0;
      bin_mass[3 * i + 1] = 0;
      bin_mass[3 * i + 2] = 0;
    }
    barrier();
    for (uint id = at; id < p.vocab; id += WG) {
      const uint key = key_of(logits.v[id]);
      const bool inside = shift == 24 || (key >> uint(shift + 8)) == prefix;
      if (key > kept.key && inside && key != 0) {
        const uint bin = (key >> uint(shift)) & 255u;
        if (by_mass) {
          const uvec3 digits = mass_digits(exp_f32((logit_of(key) - top) * rate));
          atomicAdd(bin_mass[3 * bin], digits.x);
          atomicAdd(bin_mass[3 * bin + 1], digits.y);
          atomicAdd(bin_mass[3 * bin + 2], digits.z);
        } else {
          atomicAdd(bin_count[bin], 1);
        }
      }
    }
    barrier();
    if (at == 0) {
      // Tokens with the last kept key stand there in their kept number.
      if (kept.ties != 0 && (shift == 24 || (kept.key >> uint(shift + 8)) == prefix)) {
        const uint bin = (kept.key >> uint(shift)) & 255u;
        const uvec3 digits = mass_digits(exp_f32((logit_of(kept.key) - top) * rate)) * kept.ties;
        bin_count[bin] += kept.ties;
        bin_mass[3 * bin] += digits.x;
        bin_mass[3 * bin + 1] += digits.y;
        bin_mass[3 * bin + 2] += digits.z;
      }
      uint64_t sum = before;
      uint digit = 0;
      uint64_t at_digit = before;
      // The last bin with something in it when sums end short of the target.
      for (int bin = 255; bin >= 0; bin--) {
        const uint64_t here = by_mass
            ? mass_sum(uvec3(bin_mass[3 * bin], bin_mass[3 * bin + 1], bin_mass[3 * bin + 2]))
            : uint64_t(bin_count[bin]);
        if (here == 0ul) { continue; }
        digit = uint(bin);
        at_digit = sum;
        sum += here;
        if (sum >= target) { break; }
      }
      found_digit = digit;
      found_mass = at_digit;
    }
    barrier();
    prefix = (prefix << 8) | found_digit;
    before = found_mass;
  }
  const uint64_t each = by_mass ? mass_sum(mass_digits(exp_f32((logit_of(prefix) - top) * rate))) : 1ul;
  const uint64_t missing = target > before ? target - before : 1ul;
  const uint64_t ties = each == 0ul ? 1ul : (missing + each - 1ul) / each;
  return Kept(prefix, uint(min(ties, 0xfffffffful)));
}

// Sum of unsigned numbers over the workgroup.
uint group_count(uint n) {
  n = subgroupAdd(n);
  barrier();
  if (gl_SubgroupInvocationID == 0) { group_id[gl_SubgroupID] = n; }
  barrier();
  uint sum = 0;
  for (uint i = 0; i < gl_NumSubgroups; i++) { sum += group_id[i]; }
  return sum;
}

// Largest logit with the lowest id, over the workgroup: NaN never wins, all minus infinity gives token 0.
uint group_argmax(float value, uint id) {
  const float top = subgroupMax(value);
  id = subgroupMin(value == top ? id : 0xffffffffu);
  barrier();
  if (gl_SubgroupInvocationID == 0) {
    group_value[gl_SubgroupID] = top;
    group_id[gl_SubgroupID] = id;
  }
  barrier();
  float best = group_value[0];
  uint best_id = group_id[0];
  for (uint i = 1; i < gl_NumSubgroups; i++) {
    const bool wins = group_value[i] > best || (group_value[i] == best && group_id[i] < best_id);
    best_id = wins ? group_id[i] : best_id;
    best = max(best, group_value[i]);
  }
  return best_id;
}

// Number of tokens with this key and an id below `end`.
uint count_ties(F32 logits, uint key, uint end) {
  uint n = 0;
  for (uint id = gl_LocalInvocationIndex; id < end; id += WG) { n += key_of(logits.v[id]) == key ? 1 : 0; }
  return group_count(n);
}

// Id of the n-th token (from 1) with this key, by halving.
uint nth_tie(F32 logits, uint key, uint n) {
  if (n == 1) {
    uint first = 0xffffffffu;
    for (uint id = gl_LocalInvocationIndex; id < p.vocab; id += WG) {
      first = key_of(logits.v[id]) == key ? min(first, id) : first;
    }
    return group_argmax(0.0, first);
  }
  uint low = 0, high = p.vocab;
  while (high - low > 1) {
    const uint middle = (low + high) / 2;
    if (count_ties(logits, key, middle) >= n) { high = middle; }
    else { low = middle; }
  }
  return low;
}

// Mass of the kept candidates.
uint64_t kept_mass(F32 logits, Kept kept, float top, float rate) {
  uint64_t sum = 0ul;
  for (uint id = gl_LocalInvocationIndex; id < p.vocab; id += WG) {
    const uint key = key_of(logits.v[id]);
    if (key > kept.key && key != 0) { sum += mass_sum(mass_digits(exp_f32((logit_of(key) - top) * rate))); }
  }
  const uint low = group_count(uint(sum & 0x1ffffful));
  const uint middle = group_count(uint((sum >> 21) & 0x1ffffful));
  const uint high = group_count(uint(sum >> 42));
  uint64_t all = uint64_t(low) + (uint64_t(middle) << 21) + (uint64_t(high) << 42);
  if (kept.ties != 0) {
    all += uint64_t(kept.ties) * mass_sum(mass_digits(exp_f32((logit_of(kept.key) - top) * rate)));
  }
  return all;
}

// A fraction of a mass; fractions are multiples of 2^-24.
uint64_t part_of(uint64_t mass, float fraction) {
  const uint64_t n = uint64_t(uint(fraction * 16777216.0));
  return (mass >> 24) * n + (((mass & 0xfffffful) * n) >> 24);
}

uint draw(F32 logits, Params params, float top) {
  // All candidates: keys above 0.
  Kept kept = Kept(0, 0);
  if (params.top_k > 0 && params.top_k < p.vocab) {
    uint n = 0;
    for (uint id = gl_LocalInvocationIndex; id < p.vocab; id += WG) { n += key_of(logits.v[id]) != 0 ? 1 : 0; }
    kept = find(logits, kept, false, uint64_t(min(params.top_k, group_count(n))), top, 1.0);
  }
  if (params.top_p < 1.0) {
    const uint64_t all = kept_mass(logits, kept, top, 1.0);
    const uint64_t target = max(part_of(all, params.top_p), 1ul);
    kept = find(logits, kept, true, target, top, 1.0);
  }
  if (params.min_p > 0.0) {
    const uint floor_key = key_of(top + log(params.min_p));
    if (floor_key > kept.key) { kept = Kept(floor_key - 1, 0); }
  }
  const float rate = 1.0 / params.temperature;
  const uint64_t all = kept_mass(logits, kept, top, rate);
  const uint64_t target = part_of(all, params.uniform_number) + 1ul;
  const Kept drawn = find(logits, kept, true, min(target, max(all, 1ul)), top, rate);
  return nth_tie(logits, drawn.key, max(drawn.ties, 1));
}

void main() {
  const uint row = gl_WorkGroupID.y, at = gl_LocalInvocationIndex;
  if (row >= count_at(p.counts, COUNT_OUT_ROWS)) { return; }
  const Params params = ParamRows(p.params).v[row];
  if ((params.flags & 1) == 0) { return; }
  F32 logits = F32(row_at(p.logits, row, p.vocab));
  float best = MINUS_INF;
  uint best_id = 0;
  for (uint id = at; id < p.vocab; id += WG) {
    const float logit = logits.v[id];
    if (!is_nan(logit) && logit > best) {
      best = logit;
      best_id = id;
    }
  }
  const float top = group_max(best);
  // An invocation that saw nothing above minus infinity says token 0, the answer when all say so.
  uint token = group_argmax(best, best_id);
  float sum = 0.0;
  for (uint id = at; id < p.vocab; id += WG) { sum += exp_f32(logits.v[id] - top); }
  const float log_sum = log(group_sum(sum));
  if (params.temperature > 0.0 && params.top_k != 1 && top > MINUS_INF) { token = draw(logits, params, top); }
  if (at == 0) {
    U32(p.results).v[2 * row] = token;
    F32(p.results).v[2 * row + 1] = (logits.v[token] - top) - log_sum;
    U32(p.ids).v[row] = token;
    if ((params.flags & 2) != 0) { U32(p.last).v[params.slot] = token; }
  }
}
