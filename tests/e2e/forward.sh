#!/bin/sh
# SPDX-License-Identifier: MIT
#
# forward.sh PYTHON TXDAD TXDA-COMPILE FORWARD_REFERENCE - forward.py against the logits of libtxda
# alone: on one chip and on two, with prompts whole and in pieces.
set -eu
here=$(dirname "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM

check() {
	tp=$1
	shift
	echo "tp $tp $*"
	"$python" "$here/forward.py" "$txdad" "$dir/tp$tp" "$reference" "$@"
}

python=$1
txdad=$2
compile=$3
reference=$4
for tp in 1 2; do
	"$compile" "$MODEL" -q -o "$dir/tp$tp" --tp $tp --max-tokens 256 --max-seqs 16
done
check 1
check 2
check 1 --max-num-batched-tokens 24 --max-num-seqs 8 --kv-cache-memory 2M
