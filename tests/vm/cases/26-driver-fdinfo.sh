#!/bin/sh
# SPDX-License-Identifier: MIT
# vm:
# fdinfo: engine time and memory of each client by itself.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
pci=$(chip_list | head -n 1)

# fdinfo PID - of its open node.
fdinfo() {
	for fd in /proc/"$1"/fd/*; do
		case $(readlink "$fd") in
		/dev/accel/*) cat "/proc/$1/fdinfo/${fd##*/}" && return ;;
		esac
	done
	return 1
}

# of FILE KEY
of() {
	awk -v key="$2:" '$1 == key { $1 = ""; sub(/^ */, ""); print }' "$1"
}

# bytes FILE KEY
bytes() {
	of "$1" "$2" | awk '{ unit["KiB"] = 1024; unit["MiB"] = 1048576; unit["GiB"] = 1073741824; print $1 * ($2 == "" ? 1 : unit[$2]) }'
}

node_load -s 1000 /dev/accel/accel0 >/tmp/load &
busy=$!
# Another client, which has a buffer-less file and does nothing.
sleep 1000 3<>/dev/accel/accel0 &
lazy=$!
at_work() {
	fdinfo $busy >/tmp/one && [ "$(of /tmp/one drm-engine-copy | cut -d ' ' -f 1)" -gt 0 ]
}
wait_for 30 at_work || fail "no engine time: $(cat /tmp/one)"
cat /tmp/one
[ "$(of /tmp/one drm-driver)" = txda ] || fail "drm-driver"
[ "$(of /tmp/one drm-pdev)" = "$pci" ] || fail "drm-pdev"
of /tmp/one drm-client-id | grep -qx '[0-9]*' || fail "drm-client-id"
of /tmp/one drm-engine-compute | grep -Eqx '[0-9]+ ns' || fail "drm-engine-compute"
of /tmp/one drm-engine-copy | grep -Eqx '[0-9]+ ns' || fail "drm-engine-copy"
[ "$(of /tmp/one drm-engine-compute)" = "0 ns" ] || fail "compute time without compute work"
[ "$(of /tmp/one drm-engine-capacity-copy)" -gt 1 ] || fail "capacity"
[ "$(bytes /tmp/one drm-total-vram)" -eq $((2 << 20)) ] || fail "drm-total-vram $(of /tmp/one drm-total-vram)"
[ "$(bytes /tmp/one drm-resident-vram)" -eq $((2 << 20)) ] || fail "drm-resident-vram"
[ "$(bytes /tmp/one drm-shared-vram)" -eq 0 ] || fail "drm-shared-vram"
[ "$(bytes /tmp/one drm-total-memory)" -eq $((128 << 10)) ] || fail "drm-total-memory $(of /tmp/one drm-total-memory)"

was=$(of /tmp/one drm-engine-copy | cut -d ' ' -f 1)
rises() {
	fdinfo $busy >/tmp/two && [ "$(of /tmp/two drm-engine-copy | cut -d ' ' -f 1)" -gt "$was" ]
}
wait_for 30 rises || fail "engine time stands still"
fdinfo $lazy >/tmp/lazy || fail "no fdinfo of the second client"
[ "$(of /tmp/lazy drm-client-id)" != "$(of /tmp/one drm-client-id)" ] || fail "two clients with one id"
[ "$(of /tmp/lazy drm-engine-copy)" = "0 ns" ] || fail "a client that does nothing has engine time"
[ "$(bytes /tmp/lazy drm-total-vram)" -eq 0 ] || fail "a client that has nothing has memory"

# A job that does not end is seen while it runs.
ioctl_queue_fault --busy >/tmp/busy 2>&1 &
long=$!
wait_for 30 grep -q busy /tmp/busy || fail "the client is not busy: $(cat /tmp/busy)"
fdinfo $long >/tmp/one || fail "no fdinfo of the client with a long job"
was=$(of /tmp/one drm-engine-compute | cut -d ' ' -f 1)
long_rises() {
	fdinfo $long >/tmp/two && [ "$(of /tmp/two drm-engine-compute | cut -d ' ' -f 1)" -gt "$was" ]
}
wait_for 30 long_rises || fail "engine time stands still in a long job"
kill $long
wait $long 2>/dev/null
kill -INT $busy
wait $busy || fail "$(cat /tmp/load)"
kill $lazy
wait $lazy 2>/dev/null
true
