/* talk.h: what a tool has to tell its user while it works: one line each, to the pi_message of its
 * options. Unlike errors these never stop the work. */
#ifndef BASE_TALK_H
#define BASE_TALK_H

#include "error.h"

typedef struct talk {
    void (*message)(void *user, const char *line); /* a pi_message; NULL: silent */
    void *user;
} talk;

/* Formats (cut at 512 bytes) and hands over one line; control bytes become '?'. */
void talk_say(const talk *t, const char *format, ...) BASE_PRINTF(2, 3);

#endif
