/* SPDX-License-Identifier: MIT */
/*
 * Leadership: which thread decodes packets and hands out work.
 *
 * The workers of the pool spin for a while when there is nothing to do, and each of them takes the
 * lead when it is free and a queue has work. A thread in cm_wait() takes it too, and a worker that
 * leads steps aside for it, so that at most one thread per core is busy and a synchronous caller
 * runs its own work without a wake-up. When that thread leaves while there is work, a spinning
 * worker goes on at once; if all of them sleep, one is woken.
 *
 * Nobody is forgotten: whoever makes work (a submission, a kick, giving up the lead) first
 * publishes it, then looks whether someone is awake; whoever goes to sleep first says so, then
 * looks for work.
 */
#ifndef CM_LEAD_H
#define CM_LEAD_H

#include "internal.h"

int cm_lead_start(struct cm_machine *m); /* starts the workers */
void cm_lead_stop(struct cm_machine *m); /* ends and joins them */

/*
 * Stops the machine between two ops: the caller is the leader until cm_resume(). Nests, and is a
 * no-op in callbacks, which the leader makes. Never called with a lock of the model held but
 * vm->map_lock.
 */
void cm_pause(struct cm_machine *m);
void cm_resume(struct cm_machine *m);

/* Work was published: makes sure that somebody runs it. */
void cm_lead_notify(struct cm_machine *m);
/* A fence was stored or a queue has faulted: wakes the sleepers of cm_wait(). */
void cm_lead_wake_waiters(struct cm_machine *m);
/* Wakes up to @n sleeping workers that may help in the phase that was just published. Leader. */
void cm_lead_wake_helpers(struct cm_machine *m, unsigned n);

#endif /* CM_LEAD_H */
