// Weight type Q8_0: blocks of 32 in 34 bytes: scale, 32 signed bytes.
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#include "lib/shifted.glsl"
#define UNIT 32
#define IN_FLIGHT 2

struct Raw { float d; uvec4 q[2]; };

uint64_t row_bytes(uint inner) { return uint64_t(inner / 32) * 34ul; }
Raw unit_load(uint64_t row, uint unit) {
  const uint64_t block = row + uint64_t(unit) * 34ul;
  return Raw(half_at(block), uvec4[2](shifted_words(block + 2ul), shifted_words(block + 18ul)));
}
vec4 unit_get(Raw raw, uint unit, uint k) { return raw.d * bytes_i(raw.q[k / 4][k % 4]); }
uint unit_elem(uint unit, uint k) { return unit * 32 + k * 4; }
