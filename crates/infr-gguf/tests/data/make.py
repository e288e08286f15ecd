#!/usr/bin/env python3
"""Writes gguf-py.gguf beside this script with the PyPI package `gguf`, an independent writer.

tests/pypi.rs expects these values and writes the same bytes."""
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFValueType as V
from gguf import GGUFWriter

here = pathlib.Path(__file__).parent
w = GGUFWriter(here / "gguf-py.gguf", "llama")
w.add_key_value("t.u8", 200, V.UINT8)
w.add_key_value("t.i8", -100, V.INT8)
w.add_key_value("t.u16", 60000, V.UINT16)
w.add_key_value("t.i16", -30000, V.INT16)
w.add_key_value("t.u32", 4_000_000_000, V.UINT32)
w.add_key_value("t.i32", -2_000_000_000, V.INT32)
w.add_key_value("t.f32", 0.1, V.FLOAT32)
w.add_key_value("t.bool", True, V.BOOL)
w.add_key_value("t.string", "héllo\n\u0000x", V.STRING)
w.add_key_value("t.u64", 2**63 + 1, V.UINT64)
w.add_key_value("t.i64", -(2**62), V.INT64)
w.add_key_value("t.f64", 1e300, V.FLOAT64)
w.add_key_value("a.strings", ["<s>", "", "▁the"], V.ARRAY, V.STRING)
w.add_key_value("a.bytes", b"\x00\x01\xff", V.ARRAY)
w.add_key_value("a.f32", [0.0, -1.5, 3.25], V.ARRAY, V.FLOAT32)
w.add_key_value("a.i32", [1, -2, 3], V.ARRAY, V.INT32)
w.add_key_value("a.bool", [True, False, True], V.ARRAY, V.BOOL)
w.add_tensor("token_embd.weight", np.arange(6, dtype=np.float32).reshape(2, 3))
w.add_tensor("blk.0.attn_q.weight", np.arange(2 * 34, dtype=np.uint8).reshape(2, 34), raw_dtype=Q.Q8_0)
w.add_tensor("blk.0.ids", np.arange(5, dtype=np.int32))
w.add_tensor("output.weight", np.arange(24, dtype=np.float16).reshape(2, 3, 4))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
