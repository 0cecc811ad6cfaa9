#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The library exports what its map says, the map says what the header declares, and the header
# compiles alone.
# test_libtxda_abi.sh LIBRARY MAP HEADER UAPI_DIR
set -eu
lib=$1
map=$2
header=$3
uapi=$4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export LC_ALL=C

nm -D --defined-only "$lib" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' |
	sort >"$dir/exported"
nm -D --defined-only "$lib" | awk '$2 != "T" && $2 != "A" { print $2, $3 }' >"$dir/other"
sed -n 's/^\t\(txda_[a-z_]*\);$/\1/p' "$map" | sort >"$dir/mapped"
# Names before a bracket, outside of comments and macros.
sed -e 's,/\*.*\*/,,' "$header" | awk '/\/\*/ { c = 1 } !c { print } /\*\// { c = 0 }' |
	grep -v '^#' | grep -oE '\btxda_[a-z_]+\(' | tr -d '(' | sort -u >"$dir/declared"
diff "$dir/exported" "$dir/mapped" || { echo "FAIL: < is exported, > is in the map"; exit 1; }
diff "$dir/declared" "$dir/mapped" || { echo "FAIL: < is declared, > is in the map"; exit 1; }
[ ! -s "$dir/other" ] || { cat "$dir/other"; echo "FAIL: exported, but no function"; exit 1; }

# use FILE CODE: a file that includes the header twice.
use() {
	printf '#include "%s"\n#include "%s"\n%s\n' "$header" "$header" "$2" >"$1"
}
warn="-Wall -Wextra -Wpedantic -Werror -Wno-missing-field-initializers -I$uapi"
use "$dir/t.c" 'int main(void) { struct txda_step s = TXDA_INIT(struct txda_step); return (int)s.tokens; }'
use "$dir/t.cc" 'int main() { auto s = TXDA_INIT(txda_step); return (int)s.tokens; }'
# shellcheck disable=SC2086
${CC:-cc} -std=c11 $warn -c "$dir/t.c" -o "$dir/t.o"
cxx=${CXX:-c++}
if command -v "$cxx" >/dev/null; then
	# shellcheck disable=SC2086
	"$cxx" -std=c++17 $warn -c "$dir/t.cc" -o "$dir/t2.o"
else
	echo "no C++ compiler: the header was not tried as C++17"
fi
echo "ok: $(wc -l <"$dir/exported") functions"
