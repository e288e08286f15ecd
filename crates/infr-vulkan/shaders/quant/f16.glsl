// Weight type F16: half precision.
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#define PLAIN
#define UNIT 8
#define IN_FLIGHT 4

struct Raw { uvec4 w; };

uint64_t row_bytes(uint inner) { return uint64_t(inner) * 2ul; }
Raw unit_load(uint64_t row, uint unit) { return Raw(U32x4(row + uint64_t(unit) * 16ul).v[0]); }
vec4 unit_get(Raw raw, uint unit, uint k) {
  return vec4(unpackHalf2x16(raw.w[2 * k]), unpackHalf2x16(raw.w[2 * k + 1]));
}
uint unit_elem(uint unit, uint k) { return unit * 8 + k * 4; }
float one_get(uint64_t row, uint i) { return half_of(uint(U16(row).v[i])); }
