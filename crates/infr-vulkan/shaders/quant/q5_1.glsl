// Weight type Q5_1: blocks of 32 in 24 bytes: scale, minimum, 32 fifth bits, 16 bytes of nibbles.
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#define UNIT 32
#define IN_FLIGHT 2

struct Raw { vec2 dm; uint high; uvec4 q; };

uint64_t row_bytes(uint inner) { return uint64_t(inner / 32) * 24ul; }
Raw unit_load(uint64_t row, uint unit) {
  U32 at = U32(row + uint64_t(unit) * 24ul);
  return Raw(unpackHalf2x16(at.v[0]), at.v[1], uvec4(at.v[2], at.v[3], at.v[4], at.v[5]));
}
vec4 unit_get(Raw raw, uint unit, uint k) {
  const uvec4 fifth = (uvec4(raw.high) >> (uvec4(0, 1, 2, 3) + 4 * k)) & 1u;
  return raw.dm.x * (nibbles(raw.q[k % 4] >> (k / 4 * 4)) + 16.0 * vec4(fifth)) + raw.dm.y;
}
uint unit_elem(uint unit, uint k) { return unit * 32 + k * 4; }
