// The eight 6-bit scales and minima of Q4_K and Q5_K, in 12 bytes.

// Scales (x) and minima (y) of sub-blocks 2j and 2j + 1, a byte each, from a block's first 16 bytes.
uvec2 scale_pair(uvec4 header, uint j) {
  const uint shift = 16 * (j & 1);
  const uint a = header.y >> shift, b = header.z >> shift, c = header.w >> shift;
  if (j < 2) { return uvec2(a & 0x3f3fu, b & 0x3f3fu); }
  return uvec2((c & 0x0f0fu) | ((a >> 2) & 0x3030u), ((c >> 4) & 0x0f0fu) | ((b >> 2) & 0x3030u));
}
