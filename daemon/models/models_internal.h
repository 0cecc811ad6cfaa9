/* SPDX-License-Identifier: MIT */
/* What models.c (life of a model) and model_room.c (who may stay, who has to go) share. */
#ifndef TXDA_SERVER_MODELS_INTERNAL_H
#define TXDA_SERVER_MODELS_INTERNAL_H

#include "models.h"

/* Begins to load a replica that is out, or waits for room. */
void replica_acquire(struct replica *r);
/* Gives up a load. @verdict: the model's state, if no other replica is there. */
void replica_give_up(struct replica *r, enum model_state verdict, const char *why);

/* The load of a replica found no room: lets others go, waits, or gives up. */
void room_seek(struct replica *r, const char *why);
/* A model went off its chips: those that wait for room try again. */
void room_changed(struct server *s);

#endif
