#!/bin/sh
# SPDX-License-Identifier: MIT
#
# coccicheck.sh CACHE - the driver through the kernel's coccicheck, which applies its semantic patches with
# Coccinelle. Exit status 77: they cannot be had.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=scripts/kernel-scripts.sh
. scripts/kernel-scripts.sh
cache=$(mkdir -p "$1" && cd "$1" && pwd)
kernel_scripts "$cache"

if ! command -v spatch >/dev/null; then
	echo "spatch is not installed: sh scripts/deps.sh check"
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
# Two are written in OCaml: one about another driver's table, and one about pointers compared with 0, of which sparse
# warns too. They are not worth a compiler of 285 MB.
mkdir -p "$work/scripts"
cp -R "$cache/scripts/coccinelle" "$work/scripts/"
grep -rl script:ocaml "$work/scripts" | xargs -r rm

# It ends at the first patch that fails, and what it says of that is in the debug file.
if ! srctree=$work srcroot=driver LINUXINCLUDE="-Idriver -Iuapi" MODE=report DEBUG_FILE="$work/debug" \
	bash "$cache/scripts/coccicheck" >"$work/out"; then
	tail -n 20 "$work/debug"
	exit 1
fi
! grep -E '^[^ ]*\.[ch]:[0-9]+' "$work/out"
