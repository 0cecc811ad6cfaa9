# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# limit.sh - sourced by what scripts/check.sh starts: the time until which something may begin.
# CHECK_UNTIL is that time in seconds since 1970, or empty: no limit.

# late SECONDS - no more than so many are left.
late() {
	[ -n "${CHECK_UNTIL:-}" ] && [ "$(date +%s)" -ge $((CHECK_UNTIL - $1)) ]
}
