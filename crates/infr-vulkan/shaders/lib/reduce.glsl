// Sums and maxima over the workgroup, for any subgroup size from 4 on. All invocations call and get the result.

shared float reduce_shared[WG / 4];

float group_sum(float x) {
  x = subgroupAdd(x);
  if (gl_NumSubgroups == 1) { return x; }
  barrier();
  if (gl_SubgroupInvocationID == 0) { reduce_shared[gl_SubgroupID] = x; }
  barrier();
  float sum = 0.0;
  for (uint i = 0; i < gl_NumSubgroups; i++) { sum += reduce_shared[i]; }
  return sum;
}

float group_max(float x) {
  x = subgroupMax(x);
  if (gl_NumSubgroups == 1) { return x; }
  barrier();
  if (gl_SubgroupInvocationID == 0) { reduce_shared[gl_SubgroupID] = x; }
  barrier();
  float best = reduce_shared[0];
  for (uint i = 1; i < gl_NumSubgroups; i++) { best = max(best, reduce_shared[i]); }
  return best;
}
