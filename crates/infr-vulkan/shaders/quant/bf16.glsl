// Weight type BF16: the upper half of single precision.
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#define PLAIN
#define UNIT 8
#define IN_FLIGHT 4

struct Raw { uvec4 w; };

uint64_t row_bytes(uint inner) { return uint64_t(inner) * 2ul; }
Raw unit_load(uint64_t row, uint unit) { return Raw(U32x4(row + uint64_t(unit) * 16ul).v[0]); }
vec4 unit_get(Raw raw, uint unit, uint k) {
  const uint a = raw.w[2 * k], b = raw.w[2 * k + 1];
  return uintBitsToFloat(uvec4(a << 16, a & 0xffff0000u, b << 16, b & 0xffff0000u));
}
uint unit_elem(uint unit, uint k) { return unit * 8 + k * 4; }
float one_get(uint64_t row, uint i) { return uintBitsToFloat(uint(U16(row).v[i]) << 16); }
