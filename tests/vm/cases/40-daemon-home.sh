#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=systemd plug=later about=user
# The unit before any chip: its start registers the chips' device class, and it serves a model below /home with the
# drop-in of the documents.
. /rig/guest/lib.sh
install_module
# drm, after those that use it, which an earlier case has loaded.
while [ -d /sys/module/drm ]; do
	# shellcheck disable=SC2046 # names are words
	rmmod $(lsmod | awk '/^(drm|gpu)/ && $3 == 0 { print $1 }') || fail "drm stays: $(lsmod)"
done
! grep -q ' accel$' /proc/devices || fail "accel is registered: $(lsmod)"
# Without a model it ends at once.
systemctl start txdad.service || :
grep -q ' accel$' /proc/devices || fail "the unit was started before accel is registered"
systemctl stop txdad.socket txdad.service

mkdir -p /home/alice
chmod 700 /home/alice
cp -r /t/models/demo /home/alice/models
chown -R nobody /home/alice
cp $settings /tmp/settings
printf 'model = demo=/home/alice/models\n' >>$settings
dropin=/run/systemd/system/txdad.service.d
mkdir -p $dropin
sed -n '/^## Models below/,$ { /^```ini$/,/^```$/ { /^```/d; p } }' /t/documents/docs/security.md >$dropin/home.conf
grep -qx 'BindReadOnlyPaths=/home/alice/models' $dropin/home.conf || fail "no drop-in in docs/security.md"
systemctl daemon-reload
systemctl start txdad.service || fail "the daemon is not started: $(systemctl status txdad.service)"
answers() {
	curl -fsS --max-time 20 --unix-socket /run/txda/txda.sock http://localhost/health
}
wait_for 300 answers 2>/dev/null || fail "no model below /home: $(journalctl -q --no-pager -u txdad.service)"
systemctl stop txdad.socket txdad.service || fail "the daemon does not stop"
cp /tmp/settings $settings
rm -r $dropin /home/alice
systemctl daemon-reload
