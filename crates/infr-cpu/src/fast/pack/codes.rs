//! Reads the 32 codes of a sub-block out of a block as it stands in a GGUF file, in element order.
//!
//! The layouts are those of the GGUF format (ggml's block structs).

use crate::fast::acts::BLOCK;

type Codes = [u8; BLOCK];

fn nibbles(qs: &[u8], out: &mut Codes) {
    for (i, &byte) in qs[..16].iter().enumerate() {
        out[i] = byte & 15;
        out[i + 16] = byte >> 4;
    }
}

pub(super) fn nibbles_at_1(block: &[u8], _sub: usize, out: &mut Codes) {
    nibbles(&block[1..], out);
}

pub(super) fn nibbles_at_2(block: &[u8], _sub: usize, out: &mut Codes) {
    nibbles(&block[2..], out);
}

pub(super) fn nibbles_at_4(block: &[u8], _sub: usize, out: &mut Codes) {
    nibbles(&block[4..], out);
}

fn five_bits(fields: &[u8], out: &mut Codes) {
    nibbles(&fields[4..], out);
    for (i, code) in out.iter_mut().enumerate() {
        *code |= ((fields[i / 8] >> (i % 8)) & 1) << 4;
    }
}

pub(super) fn five_bits_at_2(block: &[u8], _sub: usize, out: &mut Codes) {
    five_bits(&block[2..], out);
}

pub(super) fn five_bits_at_4(block: &[u8], _sub: usize, out: &mut Codes) {
    five_bits(&block[4..], out);
}

pub(super) fn bytes_at_2(block: &[u8], _sub: usize, out: &mut Codes) {
    out.copy_from_slice(&block[2..]);
}

/// The two-bit plane that Q2_K, Q3_K and TQ2_0 share: 32 bytes hold four sub-blocks.
fn two_bits(qs: &[u8], sub: usize, out: &mut Codes) {
    let (bytes, shift) = (&qs[32 * (sub / 4)..][..32], 2 * (sub % 4));
    for (code, byte) in out.iter_mut().zip(bytes) {
        *code = (byte >> shift) & 3;
    }
}

pub(super) fn q2_k(block: &[u8], sub: usize, out: &mut Codes) {
    two_bits(&block[16..80], sub, out);
}

pub(super) fn q3_k(block: &[u8], sub: usize, out: &mut Codes) {
    two_bits(&block[32..96], sub, out);
    for (code, byte) in out.iter_mut().zip(&block[..32]) {
        *code |= ((byte >> sub) & 1) << 2;
    }
}

pub(super) fn tq2_0(block: &[u8], sub: usize, out: &mut Codes) {
    two_bits(&block[..64], sub, out);
}

/// The nibble plane that Q4_K and Q5_K share: 32 bytes hold two sub-blocks.
fn k_nibbles(qs: &[u8], sub: usize, out: &mut Codes) {
    let (bytes, shift) = (&qs[32 * (sub / 2)..][..32], 4 * (sub % 2));
    for (code, byte) in out.iter_mut().zip(bytes) {
        *code = (byte >> shift) & 15;
    }
}

pub(super) fn q4_k(block: &[u8], sub: usize, out: &mut Codes) {
    k_nibbles(&block[16..], sub, out);
}

pub(super) fn q5_k(block: &[u8], sub: usize, out: &mut Codes) {
    k_nibbles(&block[48..], sub, out);
    for (code, byte) in out.iter_mut().zip(&block[16..48]) {
        *code |= ((byte >> sub) & 1) << 4;
    }
}

pub(super) fn q6_k(block: &[u8], sub: usize, out: &mut Codes) {
    let (n, j) = (sub / 4, sub % 4);
    let low = &block[64 * n + 32 * (j % 2)..][..32];
    let high = &block[128 + 32 * n..][..32];
    for (i, code) in out.iter_mut().enumerate() {
        *code = ((low[i] >> (4 * (j / 2))) & 15) | (((high[i] >> (2 * j)) & 3) << 4);
    }
}

pub(super) fn iq4_xs(block: &[u8], sub: usize, out: &mut Codes) {
    nibbles(&block[8 + 16 * sub..], out);
}

pub(super) fn nvfp4(block: &[u8], sub: usize, out: &mut Codes) {
    for half in 0..2 {
        // The scale 0x7F means zero, which the arithmetic of the kernel does not know.
        if block[2 * sub + half] == 0x7F {
            out[16 * half..][..16].fill(0);
            continue;
        }
        let bytes = &block[4 + 8 * (2 * sub + half)..][..8];
        for (i, byte) in bytes.iter().enumerate() {
            out[16 * half + i] = byte & 15;
            out[16 * half + 8 + i] = byte >> 4;
        }
    }
}

pub(super) fn tq1_0(block: &[u8], sub: usize, out: &mut Codes) {
    for (i, code) in out.iter_mut().enumerate() {
        let e = 32 * sub + i;
        let (byte, trit) = match e {
            0..160 => (block[e % 32], e / 32),
            160..240 => (block[32 + (e - 160) % 16], (e - 160) / 16),
            _ => (block[48 + (e - 240) % 4], (e - 240) / 4),
        };
        let digit = byte.wrapping_mul([1, 3, 9, 27, 81][trit]);
        *code = ((u16::from(digit) * 3) >> 8) as u8;
    }
}

pub(super) fn q1_0(block: &[u8], sub: usize, out: &mut Codes) {
    for (i, code) in out.iter_mut().enumerate() {
        *code = (block[2 + 4 * sub + i / 8] >> (i % 8)) & 1;
    }
}

pub(super) fn q2_0(block: &[u8], sub: usize, out: &mut Codes) {
    for (i, code) in out.iter_mut().enumerate() {
        *code = (block[2 + 8 * sub + i / 4] >> (2 * (i % 4))) & 3;
    }
}
