# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts; sourced, never run. Sets `root` and goes there.
# shellcheck shell=bash
set -euo pipefail

self=scripts/$(basename "$0")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# The interpreter that scripts/bootstrap chose, one line.
python_path_file=build/python-path

say() { printf '%s: %s\n' "$self" "$*"; }

fail() {
  printf '%s: %s\n' "$self" "$*" >&2
  exit 1
}

bad_usage() {
  printf '%s: %s (see %s --help)\n' "$self" "$*" "$self" >&2
  exit 2
}

# The comment at the top of a script, without its marks.
print_help() { awk 'NR > 2 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$root/$self"; }

python() { "$(cat "$root/$python_path_file")" "$@"; }
