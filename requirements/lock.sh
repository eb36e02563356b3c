#!/usr/bin/env bash
# Re-makes the hashed locks from the *.in files. Needs uv; run it when a requirement changes, commit the result.
set -euo pipefail
cd "$(dirname "$0")"
uv=${UV:-uv}
opts=(--quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links
      --override overrides.txt --custom-compile-command "make lock")
"$uv" pip compile "${opts[@]}" dev.in -o dev.txt
for name in training inference serving; do
  "$uv" pip compile "${opts[@]}" --constraint dev.txt "$name.in" -o "$name.txt"
done
