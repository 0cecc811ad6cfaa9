#!/bin/sh
# SPDX-License-Identifier: MIT
#
# two_programs.sh TXDA-COMPILE TWO_PROGRAMS TESTS - runs the example, and holds what it says against
# one program that does it all.
set -eu
compile=$1
example=$2
tests=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM

fail() {
	echo "FAIL: $*"
	exit 1
}

# check NAME MODEL OPTION...
check() {
	name=$1
	model=$2
	shift 2
	"$compile" "$model" -q -o "$dir/$name-step" "$@"
	"$compile" "$model" -q -o "$dir/$name-prefill" --program prefill --inputs embeds "$@"
	"$compile" "$model" -q -o "$dir/$name-decode" --program decode --inputs embeds --share "$dir/$name-prefill" "$@"
	cmp "$dir/$name-prefill/chip0/param.bin" "$dir/$name-decode/chip0/param.bin"
	[ "$(stat -c %i "$dir/$name-prefill/chip0/param.bin")" = "$(stat -c %i "$dir/$name-decode/chip0/param.bin")" ] ||
		fail "$name: the weights are two files"
	prompt="17 4 250 33 8 91 5 12 77 140 6 2 19 301 44 23 10 9 57 81 3 64 99 150 35 7"
	# shellcheck disable=SC2086 # words are tokens
	one=$("$example" "$dir/$name-step" $prompt)
	# shellcheck disable=SC2086
	two=$("$example" "$dir/$name-prefill" "$dir/$name-decode" $prompt 2>"$dir/$name.words")
	echo "$name: $two; $(cat "$dir/$name.words")"
	[ "$one" = "$two" ] || fail "$name: one program says $one"
	weights=$(sed -n 's/^weights \([0-9]*\) KiB.*/\1/p' "$dir/$name.words")
	more=$(sed -n 's/.*takes \([0-9]*\) KiB more$/\1/p' "$dir/$name.words")
	[ "$(wc -w <<EOF
$two
EOF
	)" -eq 16 ] || fail "$name: not 16 tokens"
}

export TXDA_CMODEL=chips=2,mem=1G,cores=2
check demo "$tests/models/demo" --max-seqs 16 --max-tokens 256
[ "$more" -lt "$weights" ] || fail "the second program takes $more KiB, as if it had weights of its own ($weights KiB)"
check demo-tp2 "$tests/models/demo" --max-seqs 16 --max-tokens 256 --tp 2
check v3 "$tests/fixtures/deepseek3"
check moe "$tests/fixtures/qwen2moe" --tp 2

# Weights that differ are not shared.
if "$compile" "$tests/models/demo" -q -o "$dir/other" --weights w8 --share "$dir/demo-prefill" 2>"$dir/words"; then
	fail "other weights were shared"
fi
grep -q "has other weights" "$dir/words" || fail "no words about other weights: $(cat "$dir/words")"
[ ! -e "$dir/other" ] || fail "a case dir is there all the same"
echo "all checks passed"
