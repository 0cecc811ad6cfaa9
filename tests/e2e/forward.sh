#!/bin/sh
# SPDX-License-Identifier: MIT
#
# forward.sh PYTHON TXDAD TXDA-COMPILE FORWARD_REFERENCE - forward.py against the logits of libtxda
# alone: on one chip and on two, with prompts whole and in pieces, beside
# speculative decoding; hidden states against embeddings.
set -eu
here=$(dirname "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM

check() {
	case=$1
	shift
	echo "$case $*"
	"$python" "$here/forward.py" "$txdad" "$dir/$case" "$reference" "$@"
}

python=$1
txdad=$2
compile=$3
reference=$4
for tp in 1 2; do
	"$compile" "$MODEL" -q -o "$dir/tp$tp" --tp $tp --max-tokens 256 --max-seqs 16
done
"$compile" "$MODEL" -q -o "$dir/hidden" --tp 2 --hidden --max-tokens 256 --max-seqs 16
check tp1
check tp2
check hidden --max-num-batched-tokens 24 --max-num-seqs 8 --kv-cache-memory 2M
"$compile" "$DRAFT" -q -o "$dir/draft" --max-tokens 256 --max-seqs 16
check tp1 --draft-model "$dir/draft" --num-speculative-tokens 3 --max-num-batched-tokens 40
