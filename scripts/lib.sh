# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts; sourced, never run. Sets `root` and goes there.
# shellcheck shell=bash
set -euo pipefail

# With it, cd prints where it goes, or goes elsewhere.
unset CDPATH

self=scripts/$(basename "$0")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Where everything goes that is built, and in it the interpreter that scripts/bootstrap chose, one line.
build_root=build
python_path_file=$build_root/python-path

say() { printf '%s: %s (%d s)\n' "$self" "$*" "$SECONDS"; }

fail() {
  printf '%s: %s\n' "$self" "$*" >&2
  exit 1
}

bad_usage() {
  printf '%s: %s (see %s --help)\n' "$self" "$*" "$self" >&2
  exit 2
}

# lock FILE: waits until no other process holds it, and holds it until this script ends.
lock() {
  command -v flock > /dev/null || return 0
  mkdir -p "$(dirname "$1")"
  local file
  exec {file}> "$1"
  flock -n "$file" && return
  say "waiting for another process that holds $1"
  flock "$file"
}

# supported_torch OLDEST|NEWEST: that end of the range, such as 2.11.
supported_torch() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$root/python/spillway/_torch_versions.py"; }

# take_torch VERSION: this torch in place of the pinned one, in an environment and a build folder of its own. `with_torch`
# hands the choice to other scripts.
with_torch=()
take_torch() {
  local oldest newest
  oldest=$(supported_torch OLDEST) newest=$(supported_torch NEWEST)
  if ! [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] ||
    [[ $(printf '%s\n' "$oldest" "$1" "$newest.999" | sort -V | sed -n 2p) != "$1" ]]; then
    bad_usage "--torch $1: expected a version from $oldest.0 to $newest, with all three parts"
  fi
  build_root=build/torch-$1
  python_path_file=$build_root/python-path
  # shellcheck disable=SC2034 # the scripts read it
  with_torch=(--torch "$1")
}

# The comment at the top of a script, without its marks.
print_help() { awk 'NR > 2 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$root/$self"; }

python() { "$(cat "$root/$python_path_file")" "$@"; }

# Packages of bench/NAME/requirements.txt, as they are published, into build/NAME; needs a network the first time.
install_packages() {
  local folder=$root/build/$1 wanted
  lock "$folder.lock"
  wanted=$(sha256sum < "$root/bench/$1/requirements.txt")
  if [[ $(cat "$folder/stamp" 2> /dev/null) == "$wanted" ]]; then return; fi
  say "installing bench/$1/requirements.txt into build/$1"
  rm -rf "$folder"
  mkdir -p "$folder"
  # Without dependencies: torch and whatever else .venv has is .venv's.
  python -m pip install --disable-pip-version-check -q --no-deps --target "$folder/lib" \
    -r "$root/bench/$1/requirements.txt" > "$folder/pip.log" 2>&1 || {
    tail -5 "$folder/pip.log" >&2
    fail "pip failed (its output is in build/$1/pip.log)"
  }
  echo "$wanted" > "$folder/stamp"
}
