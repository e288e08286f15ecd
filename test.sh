#!/bin/sh
# Runs every test. Fetches llama.cpp, two small models, vocabularies and templates to compare with
# (about 700 MB once, into $INFR_PEERS); where they cannot be had, the tests that need them say so.
set -eu
cd "$(dirname "$0")"
command -v cargo >/dev/null 2>&1 || { echo "the tests need Rust 1.95 or newer: install it from https://rustup.rs and run this again." >&2; exit 1; }
export INFR_PEERS="${INFR_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/infr-peers}"
mkdir -p "$INFR_PEERS"
fetch() { tools/peers/"$1" "$2" >"$INFR_PEERS/$1.log" 2>&1 || echo "test.sh: $1 failed ($INFR_PEERS/$1.log); its comparisons are skipped" >&2; }
fetch llama-cpp.sh "$INFR_PEERS/llama"
fetch models.sh "$INFR_PEERS/models"
fetch vocabs.sh "$INFR_PEERS/vocabs"
[ -x "$INFR_PEERS/python/bin/python3" ] || {
  python3 -m venv "$INFR_PEERS/python" >"$INFR_PEERS/python.log" 2>&1 &&
    "$INFR_PEERS/python/bin/pip" install -q numpy gguf >>"$INFR_PEERS/python.log" 2>&1 ||
    echo "test.sh: no Python with numpy and gguf ($INFR_PEERS/python.log); comparisons with the specification are skipped" >&2; }
export PATH="$INFR_PEERS/python/bin:$PATH"
cargo run --quiet -p xtask -- tidy
cargo test --workspace --quiet "$@"
