#!/bin/sh
# Builds infr if needed and runs it: ./infr.sh run demo "Who wrote Romeo and Juliet?"
set -eu
cd "$(dirname "$0")"
command -v cargo >/dev/null 2>&1 || { echo "infr needs Rust 1.95 or newer: install it from https://rustup.rs and run this again." >&2; exit 1; }
command -v c++ >/dev/null 2>&1 || {
  echo "infr needs a C and C++ compiler to build (linker, shader compiler): install one (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install) and run this again." >&2; exit 1; }
cargo build --release --quiet -p infr-cli || { echo "infr did not build; the messages above say why." >&2; exit 1; }
exec "${CARGO_TARGET_DIR:-target}/release/infr" "$@"
