// Weight type Q4_1: blocks of 32 in 20 bytes: scale, minimum, 16 bytes of nibbles (elements i and i + 16).
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#define UNIT 32
#define IN_FLIGHT 2

struct Raw { vec2 dm; uvec4 q; };

uint64_t row_bytes(uint inner) { return uint64_t(inner / 32) * 20ul; }
Raw unit_load(uint64_t row, uint unit) {
  U32 at = U32(row + uint64_t(unit) * 20ul);
  return Raw(unpackHalf2x16(at.v[0]), uvec4(at.v[1], at.v[2], at.v[3], at.v[4]));
}
vec4 unit_get(Raw raw, uint unit, uint k) {
  return raw.dm.x * nibbles(raw.q[k % 4] >> (k / 4 * 4)) + raw.dm.y;
}
uint unit_elem(uint unit, uint k) { return unit * 32 + k * 4; }
