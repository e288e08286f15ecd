// Weight type Q6_K: blocks of 256 in 210 bytes: 128 bytes of low nibbles, 64 of high bits, 16 sub-scales, scale.
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#include "lib/shifted.glsl"
// A unit is 16 bytes of low nibbles: 16 elements and the 16 that stand 64 elements behind them. Its place in
// the block: half (4 units), row of 32 (2 units), column of 16.
#define UNIT 32
#define IN_FLIGHT 1

struct Raw { uvec4 low, high; vec2 scale; };

uint64_t row_bytes(uint inner) { return uint64_t(inner / 256) * 210ul; }
Raw unit_load(uint64_t row, uint unit) {
  const uint64_t block = row + uint64_t(unit / 8) * 210ul;
  const uint half_idx = unit % 8 / 4, j = unit % 4 / 2, column = unit % 2, sub = half_idx * 8 + j * 2 + column;
  const uint scales = uint(U16(block + 192ul).v[sub / 2]), later = uint(U16(block + 192ul).v[sub / 2 + 2]);
  const float d = half_at(block + 208ul);
  const uint shift = sub % 2 * 8;
  return Raw(
      shifted_words(block + uint64_t(half_idx * 64 + j * 32 + column * 16)),
      shifted_words(block + uint64_t(128 + half_idx * 32 + column * 16)),
      d * (vec2(small(((scales >> shift) & 0xffu) ^ 0x80u), small(((later >> shift) & 0xffu) ^ 0x80u)) - 128.0));
}
vec4 unit_get(Raw raw, uint unit, uint k) {
  const uint j = unit % 4 / 2;
  const uint code = ((raw.low[k % 4] >> (k / 4 * 4)) & 0x0f0f0f0fu) |
      (((raw.high[k % 4] >> (2 * j + k / 4 * 4)) & 0x03030303u) << 4);
  return raw.scale[k / 4] * (bytes_u(code) - 32.0);
}
uint unit_elem(uint unit, uint k) {
  return unit / 4 * 128 + unit % 4 / 2 * 32 + unit % 2 * 16 + k / 4 * 64 + k % 4 * 4;
}
