#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_kernel_spills.sh VERSION LIBRARY... - the innermost loops of dot products in LIBRARY keep all vectors in
# registers: none of them reads or writes one on the stack. VERSION is that of gcc. The loops are laid out for gcc 12; what
# another one spills is listed, and skips the test.
set -eu
version=$1 bad=''
shift
if ! command -v objdump >/dev/null; then
	echo "objdump is not installed"
	exit 77
fi
listing=$(mktemp)
trap 'rm -f "$listing"' EXIT
for library; do
	objdump -d --no-show-raw-insn "$library" >"$listing"
	awk -v library="${library##*/}" '
	# A backward jump is the end of a loop; one without another in it is innermost.
	# The panels of W5M and W6S have blocks without a loop, which end with other work.
	function check(   i, j, n, dots, spills, inner) {
		if (name ~ /<panel_w(5m|6s)>/)
			jumps = 0
		for (i = 1; i <= jumps; i++) {
			inner = 1
			for (j = 1; j <= jumps; j++)
				if (j != i && from[j] < from[i] && to[j] >= to[i])
					inner = 0
			dots = spills = 0
			for (n = to[i]; inner && n <= from[i]; n++) {
				dots += line[n] ~ /vdpbf16ps|vpdpbusd|vpdpwssd|vpmaddwd|vpmaddubsw/
				dots += name ~ /<(panel_(bf16|f16|f32)|(codes|unpacked)_(f8|mx4))>/ && line[n] ~ /vfmadd/
				spills += line[n] ~ /[xyz]mm/ && line[n] ~ /\(%r[sb]p/
			}
			loops += dots > 0
			if (dots && spills) {
				printf "%s: a loop of %s with %d dot products has %d vectors on the stack\n", \
					library, name, dots, spills
				bad = 1
			}
		}
		count = jumps = 0
		split("", at)
	}
	/^[0-9a-f]+ <.*>:$/ {
		check()
		name = $2
		next
	}
	/^ *[0-9a-f]+:\t/ {
		split($0, field, "\t")
		gsub(/[ :]/, "", field[1])
		line[++count] = field[2]
		at[field[1]] = count
		if (field[2] ~ /^j/) {
			split(field[2], word, " +")
			if (word[2] in at) {
				to[++jumps] = at[word[2]]
				from[jumps] = count
			}
		}
	}
	END {
		check()
		printf "%s: %d loops of dot products\n", library, loops
		exit bad || loops < 20
	}' "$listing" || bad=1
done
if [ -n "$bad" ] && [ "${version%%.*}" != 12 ]; then
	echo "gcc $version keeps vectors on the stack in loops that are laid out for gcc 12"
	exit 77
fi
[ -z "$bad" ]
