// Cache pools: rows of keys or values in single or half precision.
#include "lib/bits.glsl"

const uint NOT_WRITTEN = 0xffffffffu;

// Start of element `element` of a pool's row; `kv` = 1 for half precision.
uint64_t pool_at(uint64_t pool, uint kv, uint row, uint width, uint element) {
  return pool + (uint64_t(row) * uint64_t(width) + uint64_t(element)) * (kv == 1 ? 2ul : 4ul);
}

// Stores the element of a row part that starts at `at`.
void pool_store(uint64_t at, uint kv, uint i, float value) {
  if (kv == 1) { U16(at).v[i] = uint16_t(half_bits(value)); }
  else { F32(at).v[i] = value; }
}

float pool_load(uint64_t at, uint kv, uint i) {
  return kv == 1 ? half_of(uint(U16(at).v[i])) : F32(at).v[i];
}

// Eight elements from element 8 * i on; the part starts at a multiple of 16 bytes.
void pool_load8(uint64_t at, uint kv, uint i, out vec4 a, out vec4 b) {
  if (kv == 1) {
    const uvec4 w = U32x4(at).v[i];
    a = vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
    b = vec4(unpackHalf2x16(w.z), unpackHalf2x16(w.w));
  } else {
    a = F32x4(at).v[2 * i];
    b = F32x4(at).v[2 * i + 1];
  }
}
