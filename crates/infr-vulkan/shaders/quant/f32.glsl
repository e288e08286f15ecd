// Weight type F32: single precision.
#include "lib/prelude.glsl"
#include "lib/bits.glsl"
#define PLAIN
#define UNIT 8
#define IN_FLIGHT 2

struct Raw { vec4 w[2]; };

uint64_t row_bytes(uint inner) { return uint64_t(inner) * 4ul; }
Raw unit_load(uint64_t row, uint unit) {
  F32x4 at = F32x4(row + uint64_t(unit) * 32ul);
  return Raw(vec4[2](at.v[0], at.v[1]));
}
vec4 unit_get(Raw raw, uint unit, uint k) { return raw.w[k]; }
uint unit_elem(uint unit, uint k) { return unit * 8 + k * 4; }
float one_get(uint64_t row, uint i) { return F32(row).v[i]; }
