#include "lib/prelude.glsl"
// words[list[i].x] = list[i].y for every patch.
layout(push_constant, scalar) uniform Push { uint64_t counts, list, words; } p;

void main() {
  const uint n = count_at(p.counts, COUNT_PATCHES), step = gl_NumWorkGroups.x * WG;
  for (uint i = gl_WorkGroupID.x * WG + gl_LocalInvocationIndex; i < n; i += step) {
    const uvec2 patch_word = U32x2(p.list).v[i];
    U32(p.words + uint64_t(patch_word.x) * 4ul).v[0] = patch_word.y;
  }
}
