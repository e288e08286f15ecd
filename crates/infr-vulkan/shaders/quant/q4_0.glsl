// Weight type Q4_0: blocks of 32 in 18 bytes: scale, 16 bytes of nibbles (elements i and i + 16).
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#include "lib/shifted.glsl"
#define UNIT 32
#define IN_FLIGHT 2

struct Raw { float d; uvec4 q; };

uint64_t row_bytes(uint inner) { return uint64_t(inner / 32) * 18ul; }
Raw unit_load(uint64_t row, uint unit) {
  const uint64_t block = row + uint64_t(unit) * 18ul;
  return Raw(half_at(block), shifted_words(block + 2ul));
}
vec4 unit_get(Raw raw, uint unit, uint k) {
  return raw.d * (nibbles(raw.q[k % 4] >> (k / 4 * 4)) - 8.0);
}
uint unit_elem(uint unit, uint k) { return unit * 32 + k * 4; }
