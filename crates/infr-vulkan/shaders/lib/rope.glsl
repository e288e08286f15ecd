// Rotary embedding of one head (Su et al., "RoFormer", 2021), held by the workgroup.
//
// Angles are counted in turns, in fixed point: positions times frequencies stay exact at any position, whatever
// the driver makes of a fused multiply-add.
#include "lib/bits.glsl"

// A frequency in turns per position, as a multiple of 2^-64 turns; whole turns drop out.
uint64_t fixed_turns(float f) {
  const uint bits = floatBitsToUint(f), magnitude = bits & 0x7fffffffu;
  if (magnitude == 0) { return 0ul; }
  const uint64_t mantissa = uint64_t((magnitude & 0x7fffffu) | 0x800000u);
  const int shift = int(magnitude >> 23) - 127 - 23 + 64;
  uint64_t units = 0ul;
  if (shift >= 0 && shift < 64) { units = mantissa << uint(shift); }
  if (shift < 0 && shift > -24) { units = mantissa >> uint(-shift); }
  return (bits >> 31) != 0 ? 0ul - units : units;
}

// Cosine and sine of `position` times the frequency `hi + lo`.
vec2 cos_sin(uint position, vec2 frequency) {
  const uint64_t angle = (fixed_turns(frequency.x) + fixed_turns(frequency.y)) * uint64_t(position);
  const uint turns = uint(angle >> 32);
  const uint quarter = (turns + 0x20000000u) >> 30;
  // Within an eighth of a turn of the nearest quarter.
  const float a = float(int(turns - (quarter << 30))) * 1.4629180793e-9;
  const float s = a * a;
  const float sine = a * (1.0 + s * (-1.0 / 6.0 + s * (1.0 / 120.0 + s * (-1.0 / 5040.0 + s * (1.0 / 362880.0)))));
  const float cosine = 1.0 + s * (-0.5 + s * (1.0 / 24.0 + s * (-1.0 / 720.0 + s * (1.0 / 40320.0))));
  switch (quarter & 3u) {
    case 0: return vec2(cosine, sine);
    case 1: return vec2(-sine, cosine);
    case 2: return vec2(-cosine, -sine);
    default: return vec2(sine, -cosine);
  }
}
