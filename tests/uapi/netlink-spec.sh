#!/bin/sh
# SPDX-License-Identifier: MIT
#
# netlink-spec.sh SPEC HEADER - names and order of enums, attributes and commands are the same in the
# netlink specification and in the header that was written by hand after it.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# Of the specification: each set's prefix and its entries, in order.
awk '
	/^definitions:/ { set = "definitions" }
	/^attribute-sets:/ { set = "attribute-sets" }
	/^operations:/ { set = "operations" }
	/^mcast-groups:/ { set = "" }
	set == "definitions" && /^    name: / { prefix = "txda-" $2 "-" }
	set == "definitions" && /^        name: / { print prefix $2 }
	set == "attribute-sets" && /^    name-prefix: / { prefix = $2 }
	set == "attribute-sets" && /^        name: / { print prefix $2 }
	set == "operations" && /^  name-prefix: / { prefix = $2 }
	set == "operations" && /^      name: / { print prefix $2 }
' "$1" | tr a-z- A-Z_ >"$tmp/spec"
sed -n 's/^\t\(TXDA_[A-Z0-9_]*\)\( = [12]\)\{0,1\},.*/\1/p' "$2" >"$tmp/header"
if [ "$(wc -l <"$tmp/spec")" -lt 30 ]; then
	echo "only $(wc -l <"$tmp/spec") names found in $1"
	exit 1
fi
diff -u "$tmp/spec" "$tmp/header"
