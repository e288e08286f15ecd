// Weight type Q4_K: blocks of 256 in 144 bytes: scale, minimum, 12 bytes of sub-scales, 128 bytes of nibbles.
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#include "lib/k_scales.glsl"
// A unit is 16 bytes of nibbles: 16 elements of sub-block 2j and the 16 that stand 32 elements behind them.
#define UNIT 32
#define IN_FLIGHT 2

struct Raw { uvec4 header, q; };

uint64_t row_bytes(uint inner) { return uint64_t(inner / 256) * 144ul; }
Raw unit_load(uint64_t row, uint unit) {
  U32x4 at = U32x4(row + uint64_t(unit / 8) * 144ul);
  return Raw(at.v[0], at.v[1 + unit % 8]);
}
vec4 unit_get(Raw raw, uint unit, uint k) {
  const uvec2 pair = scale_pair(raw.header, unit % 8 / 2) >> (k / 4 * 8);
  const vec2 dm = unpackHalf2x16(raw.header.x);
  return dm.x * small(pair.x & 0xffu) * nibbles(raw.q[k % 4] >> (k / 4 * 4)) - dm.y * small(pair.y & 0xffu);
}
uint unit_elem(uint unit, uint k) {
  return unit / 2 * 64 + unit % 2 * 16 + k / 4 * 32 + k % 4 * 4;
}
