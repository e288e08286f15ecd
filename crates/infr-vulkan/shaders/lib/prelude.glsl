#version 460
// What every kernel starts with: extensions, memory as typed references, the workgroup size, absent operands.
//
// Kernels get device addresses in push constants. Reference types are named by element and alignment: a
// `F32x4` must stand at a multiple of 16 bytes, a `F32` at a multiple of 4.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_clustered : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WG = 64;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer F32 { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer F32x4 { vec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer F32x2 { vec2 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer U32 { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer U32x2 { uvec2 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer U32x4 { uvec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer I32 { int v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer U16 { uint16_t v[]; };

// Indices into `counts`.
const uint COUNT_ROWS = 0;
const uint COUNT_OUT_ROWS = 2;
const uint COUNT_PATCHES = 3;
const uint COUNT_TILES = 4;

#define MINUS_INF uintBitsToFloat(0xff800000u)

// Number of rows that a kernel works on.
uint count_at(uint64_t counts, uint which) { return U32(counts).v[which]; }

// Workgroup index of a grid whose x is split over z.
uint flat_group() { return gl_WorkGroupID.x + gl_WorkGroupID.z * gl_NumWorkGroups.x; }

// Invocation index in an order where subgroups are consecutive.
uint lane_index() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

// Start of a row of `width` elements of 4 bytes.
uint64_t row_at(uint64_t base, uint row, uint width) {
  return base + uint64_t(row) * uint64_t(width) * 4ul;
}

// Element `i` of an operand, or `otherwise` when the operand is absent. Compilers move loads out of branches, so an
// absent operand's load goes to `safe`, an address that is always there.
float optional_at(uint64_t base, uint64_t safe, uint i, float otherwise) {
  const float value = F32(base != 0ul ? base + uint64_t(i) * 4ul : safe).v[0];
  return base != 0ul ? value : otherwise;
}
