// Weight type Q3_K: blocks of 256 in 110 bytes: 32 bytes of high bits, 64 of low codes, 12 of sub-scales, scale.
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#include "lib/shifted.glsl"
// A unit is 8 bytes of low codes: four runs of 8 elements that stand 32 elements apart.
#define UNIT 32
#define IN_FLIGHT 1

struct Raw { uvec2 high, low; uvec3 scales; float d; };

uint64_t row_bytes(uint inner) { return uint64_t(inner / 256) * 110ul; }
Raw unit_load(uint64_t row, uint unit) {
  const uint64_t block = row + uint64_t(unit / 8) * 110ul;
  const uint64_t high = block + uint64_t(unit % 4 * 8), low = block + uint64_t(32 + unit % 8 * 8);
  return Raw(
      uvec2(shifted_word(high), shifted_word(high + 4ul)),
      uvec2(shifted_word(low), shifted_word(low + 4ul)),
      uvec3(shifted_word(block + 96ul), shifted_word(block + 100ul), shifted_word(block + 104ul)),
      half_at(block + 108ul));
}
vec4 unit_get(Raw raw, uint unit, uint k) {
  const uint sub = unit % 8 / 4 * 8 + k / 2 * 2 + unit % 4 / 2;
  const uint low = (raw.scales[sub % 8 / 4] >> (sub % 4 * 8 + sub / 8 * 4)) & 15u;
  const uint high = (raw.scales.z >> (sub % 4 * 8 + sub / 4 * 2)) & 3u;
  const uint code = ((raw.low[k % 2] >> (k / 2 * 2)) & 0x03030303u) |
      (((raw.high[k % 2] >> (sub / 2)) & 0x01010101u) << 2);
  return raw.d * (small(low | (high << 4)) - 32.0) * (bytes_u(code) - 4.0);
}
uint unit_elem(uint unit, uint k) {
  return unit / 4 * 128 + k / 2 * 32 + unit % 4 * 8 + k % 2 * 4;
}
