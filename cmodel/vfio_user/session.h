/* SPDX-License-Identifier: MIT */
/* Handles one client's messages to one chip. */
#ifndef VU_SESSION_H
#define VU_SESSION_H

#include <stdbool.h>

#include "device.h"
#include "proto.h"

struct vu_session {
	struct vu_device *device;
	bool greeted; /* VERSION was negotiated; until then other messages are refused */
};

/*
 * Attaches to the device, detaches at the end. 0: the client has disconnected; else -errno, the
 * reason why the session ended.
 */
int vu_session_run(struct vu_device *d, int sock);

/* Handles @m; the reply is *@r. The device is attached and its op_lock is held. */
void vu_session_handle(struct vu_session *s, struct vu_message *m, struct vu_reply *r);

#endif /* VU_SESSION_H */
