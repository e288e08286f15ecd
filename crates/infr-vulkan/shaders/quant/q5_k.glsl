// Weight type Q5_K: blocks of 256 in 176 bytes: as Q4_K, with 32 bytes of fifth bits before the nibbles.
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#include "lib/k_scales.glsl"
// A unit is 16 bytes of nibbles, as in Q4_K.
#define UNIT 32
#define IN_FLIGHT 1

struct Raw { uvec4 header, high, q; };

uint64_t row_bytes(uint inner) { return uint64_t(inner / 256) * 176ul; }
Raw unit_load(uint64_t row, uint unit) {
  U32x4 at = U32x4(row + uint64_t(unit / 8) * 176ul);
  return Raw(at.v[0], at.v[1 + unit % 2], at.v[3 + unit % 8]);
}
vec4 unit_get(Raw raw, uint unit, uint k) {
  const uint j = unit % 8 / 2, sub = 2 * j + k / 4;
  const uvec2 pair = scale_pair(raw.header, j) >> (k / 4 * 8);
  const vec2 dm = unpackHalf2x16(raw.header.x);
  const uint code = ((raw.q[k % 4] >> (k / 4 * 4)) & 0x0f0f0f0fu) | (((raw.high[k % 4] >> sub) & 0x01010101u) << 4);
  return dm.x * small(pair.x & 0xffu) * bytes_u(code) - dm.y * small(pair.y & 0xffu);
}
uint unit_elem(uint unit, uint k) {
  return unit / 2 * 64 + unit % 2 * 16 + k / 4 * 32 + k % 4 * 4;
}
