# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# Settings of the kernel's fault injection, for the cases that make allocations fail. To be sourced
# after lib.sh.
injection=/sys/kernel/debug
[ -d $injection/failslab ] || skip "no fault injection in this kernel"

# All kinds of allocations; failures are not logged.
for attribute in failslab fail_page_alloc fail_usercopy; do
	echo 0 >$injection/$attribute/verbose
done
echo N >$injection/failslab/ignore-gfp-wait
echo N >$injection/fail_page_alloc/ignore-gfp-wait
echo N >$injection/fail_page_alloc/ignore-gfp-highmem
echo 0 >$injection/fail_page_alloc/min-order

# symbols PATTERN [MODULE] - addresses of functions, the lowest first.
symbols() {
	awk -v pattern="$1" -v module="${2:+[$2]}" '$3 ~ pattern && $2 ~ /[tT]/ && $4 == module { print "0x" $1 }' /proc/kallsyms | sort
}

# The kernel's buddy allocator puts a block that it cannot split back where it still is, and its next
# allocation is a BUG (7.2, alloc_from_freetree()): it is spared.
buddy=$(symbols gpu_buddy_)
[ -n "$buddy" ] || fail "no buddy allocator in /proc/kallsyms"
echo "$buddy" | head -n 1 >$injection/failslab/reject-start
echo "$buddy" | tail -n 1 >$injection/failslab/reject-end
echo 32 >$injection/failslab/stacktrace-depth
