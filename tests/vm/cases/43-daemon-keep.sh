#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=systemd plug=later about=user
# Weights in the memory of real chips outlive the daemon: systemd keeps their dma-bufs over a crash and a restart, and gives them up with a stop.
. /rig/guest/lib.sh
install_module
printf 'model = demo=/t/cases/demo-tp1\nmax-num-seqs = 4\n' >>$settings
s=/run/txda/txda.sock
answers() {
	curl -fsS --max-time 20 --unix-socket $s http://localhost/health >/dev/null 2>&1
}
of_unit() {
	systemctl show -P "$1" txdad.service
}
gone() {
	[ "$(of_unit MainPID)" != "$pid" ]
}
lost() {
	journalctl -q --no-pager -u txdad.service
	fail "$@"
}
model() {
	curl -fsS --unix-socket $s http://localhost/v1/models/demo || lost "the model"
}
same() {
	curl -sS --max-time 120 --unix-socket $s -H 'Content-Type: application/json' -d @/t/text/question http://localhost/v1/completions >/tmp/answer || lost "no answer"
	sed 's/.*"text":"\(.*\)","logprobs".*/\1/' /tmp/answer | cmp -s - /t/text/demo-tp1 || {
		cat /tmp/answer
		lost "$1: it does not write what it should"
	}
}
adopted() {
	model | grep -q "\"adopted\":$1"
}
# ready WHEN true|false KEPT: the daemon is there, its weights were or were not, and systemd keeps so many descriptors
ready() {
	wait_for 120 answers || lost "$1: no answer"
	wait_for 60 adopted "$2" || lost "$1: $(model)"
	[ "$(of_unit NFileDescriptorStore)" = "$3" ] || lost "$1: $(of_unit NFileDescriptorStore) descriptors are kept, not $3"
	same "$1"
	pid=$(of_unit MainPID)
}
used() {
	cat /sys/class/accel/accel*/device/npu_memory_utilization
}

plug 0 || fail "chip 0 does not come"
wait_for 30 nodes_are 1 || fail "no node"
active() {
	[ "$(systemctl is-active txdad.service)" = active ]
}
wait_for 120 active || lost "the daemon is not started"
empty=$(($(used)))
ready "at first" false 2

for i in 1 2 3; do
	kill -9 "$pid"
	wait_for 30 gone || lost "killed and still there"
	ready "killed $i times" true 2
done
systemctl restart txdad.service || lost "restart"
wait_for 30 gone || lost "not another daemon"
ready "restarted" true 2
full=$(($(used)))

# A chip that goes while its daemon is dead: what was kept of it is of no use, the model comes to the chip that is there.
plug 1 || fail "chip 1 does not come"
wait_for 30 nodes_are 2 || fail "no second node"
udevadm settle
mkdir -p /run/systemd/system/txdad.service.d
printf '[Service]\nRestartSec=20\n' >/run/systemd/system/txdad.service.d/later.conf
systemctl daemon-reload || fail "daemon-reload"
kill -9 "$pid"
unplug 0 || fail "device_del"
wait_for 60 nodes_are 1 || fail "chip 0 is still there"
ready "without its chip" false 2
rm /run/systemd/system/txdad.service.d/later.conf
systemctl daemon-reload || fail "daemon-reload"
kill -9 "$pid"
wait_for 30 gone || lost "killed and still there"
ready "on the other chip" true 2

systemctl stop txdad.socket txdad.service || fail "the daemon does not stop"
[ "$(of_unit NFileDescriptorStore)" = 0 ] || lost "stopped, and $(of_unit NFileDescriptorStore) descriptors are kept"
free() {
	[ $(($(used))) -lt $((full / 2)) ]
}
echo "bytes in use: $empty at the start of the daemon, $full with the model, $(used) in the end"
wait_for 30 free || lost "stopped, and $(used) bytes of the chip are in use"
rmmod txda || fail "the module is still used"
journalctl -q --no-pager -u txdad.service
