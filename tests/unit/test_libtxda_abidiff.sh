#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Programs that were built with the library of the last release work with this one: functions, types and layouts
# are those of libtxda.abi.xml, which abidw wrote. Debug information says what this library has.
#
# test_libtxda_abidiff.sh LIBRARY DESCRIPTION HEADER           compare
# test_libtxda_abidiff.sh --write LIBRARY DESCRIPTION HEADER   describe: after an addition that breaks no program, such
#                                                              as a function, or a member at an options struct's end
set -eu
write=
if [ "$1" = --write ]; then
	write=1
	shift
fi
lib=$1 description=$2 header=$3
if [ -n "$write" ]; then
	exec abidw --exported-interfaces-only --header-file "$header" --drop-private-types --no-corpus-path \
		--no-comp-dir-path --no-show-locs --no-elf-needed --no-parameter-names --type-id-style hash \
		--out-file "$description" "$lib"
fi
abidiff "$description" "$lib" || {
	echo "FAIL: the binary interface differs from $description. What breaks programs needs a new soversion; what only"
	echo "adds: sh $0 --write $lib $description $header"
	exit 1
}
