#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=systemd plug=later about=user
# A chip that is plugged in loads the module, and its node starts the daemon.
. /rig/guest/lib.sh
install_module
cp $settings /tmp/settings
printf 'model = tales=/t/models/demo\n' >>$settings
! loaded || fail "the module is loaded already"
[ "$(systemctl is-active txdad.service)" = inactive ] || fail "the daemon runs already"

plug 0 || fail "chip 0 does not come"
wait_for 30 loaded || fail "the module is not loaded for the chip"
wait_for 30 nodes_are 1 || fail "no node"
active() {
	[ "$(systemctl is-active txdad.service)" = active ]
}
wait_for 120 active || fail "the daemon is not started: $(systemctl status txdad.service)"
[ "$(stat -c '%U:%G %a' /run/txda/txda.sock)" = "root:txda 660" ] || fail "$(stat /run/txda/txda.sock)"
# 503 while the model is compiled and loaded.
answers() {
	curl -fsS --max-time 20 --unix-socket /run/txda/txda.sock http://localhost/health
}
wait_for 90 answers 2>/dev/null || fail "the daemon does not answer: $(systemctl status txdad.service)"

# A second chip joins the daemon that runs.
pid=$(systemctl show -P MainPID txdad.service)
plug 1 || fail "chip 1 does not come"
wait_for 30 nodes_are 2 || fail "no second node"
udevadm settle
[ "$(systemctl show -P MainPID txdad.service)" = "$pid" ] || fail "the daemon was started again"
active || fail "the daemon died of the second chip"
systemctl stop txdad.socket txdad.service || fail "the daemon does not stop"
journalctl -q --no-pager -u txdad.service
cp /tmp/settings $settings
unplug_all
