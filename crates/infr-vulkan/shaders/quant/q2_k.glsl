// Weight type Q2_K: blocks of 256 in 84 bytes: 16 bytes of sub-scales and minima, 64 of codes, scale, minimum.
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
// A unit is 8 bytes of codes: four runs of 8 elements that stand 32 elements apart.
#define UNIT 32
#define IN_FLIGHT 1

struct Raw { uvec2 q; uvec4 scales; vec2 dm; };

uint64_t row_bytes(uint inner) { return uint64_t(inner / 256) * 84ul; }
Raw unit_load(uint64_t row, uint unit) {
  U32 at = U32(row + uint64_t(unit / 8) * 84ul);
  const uint q = 4 + unit % 8 * 2;
  return Raw(uvec2(at.v[q], at.v[q + 1]), uvec4(at.v[0], at.v[1], at.v[2], at.v[3]), unpackHalf2x16(at.v[20]));
}
vec4 unit_get(Raw raw, uint unit, uint k) {
  const uint sub = unit % 8 / 4 * 8 + k / 2 * 2 + unit % 4 / 2;
  const uint field = raw.scales[sub / 4] >> (sub % 4 * 8);
  const vec4 codes = bytes_u((raw.q[k % 2] >> (k / 2 * 2)) & 0x03030303u);
  return raw.dm.x * small(field & 15u) * codes - raw.dm.y * small((field >> 4) & 15u);
}
uint unit_elem(uint unit, uint k) {
  return unit / 4 * 128 + k / 2 * 32 + unit % 4 * 8 + k % 2 * 4;
}
