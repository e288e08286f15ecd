#!/bin/sh
# Builds infr if needed and runs it: ./infr.sh run demo "What is the capital of France?"
set -eu
cd "$(dirname "$0")"
command -v cargo >/dev/null 2>&1 || { echo "infr needs Rust 1.95 or newer: install it from https://rustup.rs and run this again." >&2; exit 1; }
command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || command -v clang >/dev/null 2>&1 || {
  echo "infr needs a C compiler as linker: install one (Debian, Ubuntu: apt-get install gcc libc6-dev; macOS: xcode-select --install) and run this again." >&2; exit 1; }
cargo build --release --quiet -p infr-cli || { echo "infr did not build; the messages above say why." >&2; exit 1; }
exec "${CARGO_TARGET_DIR:-target}/release/infr" "$@"
