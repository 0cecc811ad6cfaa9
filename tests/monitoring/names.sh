#!/bin/sh
# SPDX-License-Identifier: MIT
#
# names.sh PYTHON PACKAGING - the daemon's metrics, against what dashboard and alert rules in PACKAGING name.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/e2e/lib.sh
. "$here/../e2e/lib.sh"
start --model "demo=$MODEL"
http http://localhost/metrics >"$tmp/metrics"
stop
"$1" "$here/names.py" "$tmp/metrics" "$2/grafana/txda.json" "$2/prometheus/txda.rules.yml" || fail "see above"
conclude
