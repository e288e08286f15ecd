#include "lib/prelude.glsl"
// Words at addresses that are multiples of 2: two aligned halves would be two loads, so aligned words are
// loaded and shifted. The load of the next word is left out where it would lie behind the wanted bytes.

uint shifted_word(uint64_t address) {
  U32 words = U32(address & ~3ul);
  if ((uint(address) & 2u) == 0u) { return words.v[0]; }
  return (words.v[0] >> 16) | (words.v[1] << 16);
}

// Four words in a row.
uvec4 shifted_words(uint64_t address) {
  U32 words = U32(address & ~3ul);
  const uvec4 low = uvec4(words.v[0], words.v[1], words.v[2], words.v[3]);
  if ((uint(address) & 2u) == 0u) { return low; }
  return (low >> 16) | (uvec4(low.yzw, words.v[4]) << 16);
}

// A half at an even address.
float half_at(uint64_t address) { return half_of(uint(U16(address).v[0])); }
