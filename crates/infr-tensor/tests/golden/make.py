"""Writes the golden files of this directory.

Usage: python3 tests/golden/make.py LLAMA_QUANTIZE      (numpy and gguf installed)

<TYPE>.bin: u32 block count, the blocks, u64 FNV-1a hash of the bytes of all decoded f32 values, then the
first 256 decoded values. Blocks are random bytes with finite scales; the values come from the numpy
dequantisers of the PyPI package `gguf`, those of Q1_0 and Q2_0 from llama-quantize.

encoded.txt: per type an FNV-1a hash of the blocks into which `gguf` quantises the values of `gaussian`.

quality.txt: per type the root mean square error of llama-quantize --pure on the values of `gaussian`.
"""
import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf.quants
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

HERE = pathlib.Path(__file__).resolve().parent
T = GGMLQuantizationType
VALUES = 16384

# type, id, block length, block bytes, offsets of half-precision scales
TYPES = [
    ("F32", 0, 1, 4, []),
    ("F16", 1, 1, 2, [0]),
    ("BF16", 30, 1, 2, []),
    ("F64", 28, 1, 8, []),
    ("Q4_0", 2, 32, 18, [0]),
    ("Q4_1", 3, 32, 20, [0, 2]),
    ("Q5_0", 6, 32, 22, [0]),
    ("Q5_1", 7, 32, 24, [0, 2]),
    ("Q8_0", 8, 32, 34, [0]),
    ("Q2_K", 10, 256, 84, [80, 82]),
    ("Q3_K", 11, 256, 110, [108]),
    ("Q4_K", 12, 256, 144, [0, 2]),
    ("Q5_K", 13, 256, 176, [0, 2]),
    ("Q6_K", 14, 256, 210, [208]),
    ("IQ2_XXS", 16, 256, 66, [0]),
    ("IQ2_XS", 17, 256, 74, [0]),
    ("IQ3_XXS", 18, 256, 98, [0]),
    ("IQ1_S", 19, 256, 50, [0]),
    ("IQ4_NL", 20, 32, 18, [0]),
    ("IQ3_S", 21, 256, 110, [0]),
    ("IQ2_S", 22, 256, 82, [0]),
    ("IQ4_XS", 23, 256, 136, [0]),
    ("IQ1_M", 29, 256, 56, []),
    ("TQ1_0", 34, 256, 54, [52]),
    ("TQ2_0", 35, 256, 66, [64]),
    ("MXFP4", 39, 32, 17, []),
    ("NVFP4", 40, 64, 36, []),
    ("Q1_0", 41, 128, 18, [0]),
    ("Q2_0", 42, 64, 18, [0]),
]

# type, name for llama-quantize
QUALITY = [
    ("Q4_0", "Q4_0"), ("Q4_1", "Q4_1"), ("Q5_0", "Q5_0"), ("Q5_1", "Q5_1"), ("Q8_0", "Q8_0"),
    ("Q2_K", "Q2_K"), ("Q3_K", "Q3_K_S"), ("Q4_K", "Q4_K_S"), ("Q5_K", "Q5_K_S"), ("Q6_K", "Q6_K"),
    ("IQ4_NL", "IQ4_NL"), ("IQ4_XS", "IQ4_XS"), ("TQ1_0", "TQ1_0"), ("TQ2_0", "TQ2_0"),
    ("MXFP4", "MXFP4_MOE"), ("Q1_0", "Q1_0"), ("Q2_0", "Q2_0"),
]  # fmt: skip


def fnv(data: bytes) -> int:
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 % 2**64
    return h


def splitmix(seed: int):
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) % 2**64
        z = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        yield z ^ (z >> 31)


def gaussian() -> np.ndarray:
    """Nearly normal values of standard deviation 1.15: sums of sixteen random bytes."""
    rng = splitmix(1)
    sums = [sum(next(rng).to_bytes(8, "little")) + sum(next(rng).to_bytes(8, "little")) for _ in range(VALUES)]
    return ((np.array(sums) - 2040) / 256).astype(np.float32)


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def write_gguf(path: pathlib.Path, type_id: int, data: bytes) -> None:
    """One 256-wide matrix of any type in a file that llama-quantize accepts."""
    numbers = {"context_length": 32, "embedding_length": 256, "block_count": 1, "feed_forward_length": 256,
               "attention.head_count": 4, "vocab_size": 64}  # fmt: skip
    head = struct.pack("<IIQQ", 0x46554747, 3, 1, len(numbers) + 2)
    head += string("general.architecture") + struct.pack("<I", 8) + string("llama")
    for key, value in numbers.items():
        head += string(f"llama.{key}") + struct.pack("<II", 4, value)
    head += string("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)
    head += string("blk.0.ffn_up.weight") + struct.pack("<IQQIQ", 2, 256, VALUES // 256, type_id, 0)
    head += bytes(-len(head) % 32)
    path.write_bytes(head + data + bytes(-len(data) % 32))


def llama_quantize(tool: str, type_id: int, data: bytes, target: str, n_bytes: int) -> bytes:
    """The tensor data of the quantised file: it is all there is after the header."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = pathlib.Path(folder) / "in.gguf", pathlib.Path(folder) / "out.gguf"
        write_gguf(source, type_id, data)
        subprocess.run([tool, "--pure", "--allow-requantize", source, result, target], check=True, capture_output=True)
        return result.read_bytes()[-(n_bytes + -n_bytes % 32) :][:n_bytes]


def finite_half(blocks: np.ndarray, at: int) -> None:
    """Clears the top exponent bit of the half at byte `at`, which makes it finite and of moderate size."""
    blocks[:, at + 1] &= 0xBF


def random_blocks(rng: np.random.Generator, name: str, n_blocks: int, n_bytes: int, halves) -> np.ndarray:
    blocks = rng.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
    for at in halves:
        finite_half(blocks, at)
    if name in ("F32", "F64", "BF16"):
        blocks[:, -1] &= 0xBF
        if name == "F64":  # the range of f32
            blocks[:, -1] |= 0x38
            blocks[:, -1] &= 0xBB
    if name == "MXFP4":  # larger powers overflow
        blocks[:, 0] = np.minimum(blocks[:, 0], 252)
        blocks[:4, 0] = [0, 1, 2, 252]
    if name == "NVFP4":
        blocks[:2, :4] = [[0, 1, 7, 8], [0x7E, 0x7F, 0x80, 0xFF]]
    if name == "IQ1_M":  # the exponent of the half is spread over the top nibble of the last word
        blocks[:, 55] &= 0xBF
    return blocks


def decode(tool: str, name: str, type_id: int, blocks: np.ndarray) -> np.ndarray:
    if name == "F64":
        return blocks.reshape(-1).view("<f8").astype("<f4")
    if name in ("Q1_0", "Q2_0"):
        raw = llama_quantize(tool, type_id, blocks.tobytes(), "F32", 4 * VALUES)
        return np.frombuffer(raw, "<f4")
    return gguf.quants.dequantize(blocks, T[name]).astype("<f4").reshape(-1)


def main() -> None:
    tool = sys.argv[1]
    rng = np.random.default_rng(7)
    for name, type_id, length, n_bytes, halves in TYPES:
        n_blocks = 256 if length == 1 else VALUES // length
        blocks = random_blocks(rng, name, n_blocks, n_bytes, halves)
        values = decode(tool, name, type_id, blocks)
        assert values.size == n_blocks * length and np.isfinite(values).all(), name
        out = struct.pack("<I", n_blocks) + blocks.tobytes()
        out += struct.pack("<Q", fnv(values.tobytes())) + values[:256].tobytes()
        (HERE / f"{name}.bin").write_bytes(out)

    x = gaussian()
    lines = [f"{name} {fnv(gguf.quants.quantize(x, T[name]).tobytes()):016x}"
             for name in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "TQ1_0", "TQ2_0", "MXFP4")]  # fmt: skip
    (HERE / "encoded.txt").write_text("\n".join(lines) + "\n")

    facts = {t[0]: t for t in TYPES}
    lines = []
    for name, target in QUALITY:
        _, type_id, length, n_bytes, _ = facts[name]
        raw = llama_quantize(tool, 0, x.tobytes(), target, VALUES // length * n_bytes)
        y = decode(tool, name, type_id, np.frombuffer(raw, np.uint8).reshape(-1, n_bytes))
        lines.append(f"{name} {np.sqrt(np.mean((y.astype(np.float64) - x) ** 2)):.6f}")
    (HERE / "quality.txt").write_text("\n".join(lines) + "\n")


main()
