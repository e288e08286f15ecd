// Exact conversions between packed integers, halves and floats.

// A small unsigned integer (below 2^23) as a float, without the slow conversion unit.
float small(uint x) { return uintBitsToFloat(x | 0x4b000000u) - 8388608.0; }

// The four bytes of a word as floats: unsigned, and signed.
vec4 bytes_u(uint w) {
  return vec4(small(w & 0xffu), small((w >> 8) & 0xffu), small((w >> 16) & 0xffu), small(w >> 24));
}
vec4 bytes_i(uint w) { return bytes_u(w ^ 0x80808080u) - 128.0; }

// The four low nibbles of a word's bytes as floats.
vec4 nibbles(uint w) { return bytes_u(w & 0x0f0f0f0fu); }

// The half in the low 16 bits.
float half_of(uint w) { return unpackHalf2x16(w & 0xffffu).x; }

// Rounds to half precision, ties to even; the driver's own packing may truncate.
uint half_bits(float x) {
  const uint bits = floatBitsToUint(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) { return sign | 0x7e00u; }
  if (magnitude >= 0x477ff000u) { return sign | 0x7c00u; }
  if (magnitude < 0x38800000u) {
    // Below the smallest normal half: the value in units of 2^-24, rounded by adding 2^23.
    const float units = uintBitsToFloat(magnitude) * 16777216.0 + 8388608.0;
    return sign | (floatBitsToUint(units) & 0x7ffu);
  }
  return sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13);
}

// Survives compilers that assume there is no NaN.
bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
