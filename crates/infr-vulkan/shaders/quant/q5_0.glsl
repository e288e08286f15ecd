// Weight type Q5_0: blocks of 32 in 22 bytes: scale, 32 fifth bits, 16 bytes of nibbles (elements i and i + 16).
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#include "lib/shifted.glsl"
#define UNIT 32
#define IN_FLIGHT 2

struct Raw { float d; uint high; uvec4 q; };

uint64_t row_bytes(uint inner) { return uint64_t(inner / 32) * 22ul; }
Raw unit_load(uint64_t row, uint unit) {
  const uint64_t block = row + uint64_t(unit) * 22ul;
  return Raw(half_at(block), shifted_word(block + 2ul), shifted_words(block + 6ul));
}
vec4 unit_get(Raw raw, uint unit, uint k) {
  const uvec4 fifth = (uvec4(raw.high) >> (uvec4(0, 1, 2, 3) + 4 * k)) & 1u;
  return raw.d * (nibbles(raw.q[k % 4] >> (k / 4 * 4)) + 16.0 * vec4(fifth) - 16.0);
}
uint unit_elem(uint unit, uint k) { return unit * 32 + k * 4; }
