#version 460
// Uses every extension that the kernels use: a compiler that builds this builds them all.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_clustered : require
layout(local_size_x_id = 0) in;
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Halves { uint16_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Bytes { uint8_t v[]; };
layout(push_constant, scalar) uniform Push { uint64_t at; uint n; } p;
void main() {
  float sum = 0;
  [[unroll]] for (uint i = 0; i < 4; i++) { sum += float(Bytes(p.at).v[i]); }
  sum = subgroupClusteredAdd(subgroupAdd(sum), 4);
  Halves(p.at + uint64_t(p.n) * 2).v[gl_SubgroupInvocationID] = uint16_t(packHalf2x16(vec2(sum)));
}
