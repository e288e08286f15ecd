#!/bin/sh
# Runs every test. Fetches llama.cpp, a software Vulkan with validation layers, two small models,
# vocabularies and templates to compare with (about 1 GB once, into $INFR_PEERS); where they cannot be
# had, the tests that need them say so.
set -eu
cd "$(dirname "$0")"
command -v cargo >/dev/null 2>&1 || { echo "the tests need Rust 1.95 or newer: install it from https://rustup.rs and run this again." >&2; exit 1; }
export INFR_PEERS="${INFR_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/infr-peers}"
mkdir -p "$INFR_PEERS"
fetch() { MESA=1 tools/peers/"$1" "$2" >"$INFR_PEERS/$1.log" 2>&1 || echo "test.sh: $1 failed ($INFR_PEERS/$1.log); its comparisons are skipped" >&2; }
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

# Vulkan once more, on the software device of the prefix with the validation layers, where every
# message is a failure. (Above, these tests ran on the machine's own devices, if it has any.)
lavapipe=$INFR_PEERS/llama/bin/in-prefix-lavapipe
if [ -x "$lavapipe" ]; then
  export VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation
  export VK_LAYER_VALIDATE_SYNC=1 VK_LAYER_SYNCVAL_SHADER_ACCESSES_HEURISTIC=1
  for program in $(cargo test --workspace --no-run --quiet --message-format=json |
    grep -E '"package_id":"[^"]*infr-vulkan[#@]' | grep -oE '"executable":"[^"]+"' | cut -d'"' -f4); do
    (cd crates/infr-vulkan && "$lavapipe" "$program" --quiet)
  done
fi
