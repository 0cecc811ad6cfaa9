#!/bin/sh
# SPDX-License-Identifier: MIT
#
# alert-rules.sh CACHE - Prometheus reads our rules, and they fire when they should. CACHE is that of promtool.sh. Exit
# status 77: no promtool can be had.
set -eu
cd "$(dirname "$0")/.."
promtool=$(sh scripts/promtool.sh "$1") || {
	echo "no promtool here, and none could be fetched"
	exit 77
}
"$promtool" check rules packaging/prometheus/txda.rules.yml
"$promtool" test rules tests/monitoring/rules.test.yml
