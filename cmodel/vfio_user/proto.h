/* SPDX-License-Identifier: MIT */
/*
 * Framing: receives and sends whole messages on a socket.
 *
 * A header is read on its own, so that the descriptors which come with it belong to it: the kernel
 * ends a read after bytes that carried some. Nothing that a peer sends can make these functions
 * write outside the buffers or leak a descriptor; a malformed frame is -EPROTO. After that message
 * boundaries are unknown and the connection has to be closed.
 *
 * Threads: one reader and one writer a socket.
 */
#ifndef VU_PROTO_H
#define VU_PROTO_H

#include <stddef.h>
#include "wire.h"

struct vu_message {
	struct vu_header header;
	uint32_t body_bytes;
	uint8_t *body; /* room for VU_MAX_MESSAGE bytes; 8-byte aligned */
	int fd[VU_MAX_FDS];
	unsigned n_fds; /* -1: taken by the user of the descriptor; others get closed */
};

struct vu_reply {
	int error; /* an errno: only the header is sent */
	uint32_t body_bytes;
	uint8_t *body; /* likewise */
	int fd;	       /* sent along, stays open; -1: none */
};

int vu_message_init(struct vu_message *m, struct vu_reply *r); /* the buffers; -ENOMEM */
void vu_message_free(struct vu_message *m, struct vu_reply *r);
/* Closes the descriptors that were not taken. */
void vu_message_close_fds(struct vu_message *m);

/*
 * Waits for a message. -ECONNRESET: the peer is gone, in the middle of a message or between two.
 * -EPROTO: bad frame. On failure no descriptor is left open.
 */
int vu_proto_receive(int sock, struct vu_message *m);
/* Replies to @m. Blocks while the peer does not read. */
int vu_proto_reply(int sock, const struct vu_message *m, const struct vu_reply *r);

#endif /* VU_PROTO_H */
