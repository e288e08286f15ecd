// Paged caches: from logical rows of a slot to physical rows of a pool.

struct Pages {
  // The slot's part of the table.
  uint64_t table;
  // Entries per slot, a power of two.
  uint stride;
  uint log2_len;
};

Pages pages_of(uint64_t tables, uint slot, uint stride, uint log2_len) {
  return Pages(tables + uint64_t(slot) * uint64_t(stride) * 4ul, stride, log2_len);
}

uint physical_row(Pages pages, uint logical) {
  const uint page = U32(pages.table).v[(logical >> pages.log2_len) & (pages.stride - 1)];
  return (page << pages.log2_len) | (logical & ((1u << pages.log2_len) - 1));
}
