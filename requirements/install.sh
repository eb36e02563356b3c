#!/usr/bin/env bash
# install.sh LOCK ENVIRONMENT: makes a virtual environment that holds exactly what requirements/LOCK.txt lists.
# Output goes to var/log/setup-LOCK.log. PYTHON names the interpreter (3.11 to 3.13).
set -euo pipefail
cd "$(dirname "$0")/.."
lock=$1 environment=$2 python=${PYTHON:-python3}
log="var/log/setup-$lock.log"
mkdir -p var/log

say() { printf 'setup: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

command -v "$python" >/dev/null || fail "no '$python' here: install Python 3.11, or run make with PYTHON=/path/to/python3.11"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
    fail "$("$python" --version) is not supported: the locks are made for Python 3.11 to 3.13; run make with PYTHON=/path/to/python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "'$python' lacks the venv module: install it (on Debian: apt-get install python3-venv)"

say "$environment from requirements/$lock.txt (log: $log)"
started=$SECONDS
"$python" -m venv --clear "$environment"
# --no-deps: the lock is complete, and it leaves out opencv-python, which Ultralytics asks for, on purpose.
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    -r "requirements/$lock.txt" >"$log" 2>&1 || { grep -v 'is ignored' "$log" | tail -n 20 >&2; fail "installation failed, see $log"; }
say "$environment ready after $((SECONDS - started)) s"
