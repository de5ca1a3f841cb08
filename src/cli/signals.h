/* signals.h: handles requests to end (SIGINT, SIGTERM, SIGHUP) and fatal signals (SIGQUIT, SIGXCPU,
 * SIGBUS). Unless a command handles a request itself, the handler removes unfinished output files
 * and ends the program as the signal would have ended it.
 *
 * Only signals need global state, because a handler has no argument. The state is in signals.c and
 * is written before handlers are installed. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include "os_signal.h"
#include "powerinfer.h"

/* Once, at the very start. Installs the handlers; a mapped file that loses its pages ends the
 * program with one line and status 1. Opens the descriptors 0..2 that the caller closed, so that no
 * later file gets their numbers, and turns SIGPIPE and SIGXFSZ into write errors. */
void signals_prepare(void);

/* From now on, if a file becomes shorter while it is in use, all ranks of the cluster end. The
 * cluster must stay open until signals_join(NULL). */
void signals_join(pi_cluster *cluster);
/* The first request to end cancels `context` and is recorded; the second ends the program. */
void signals_cancel_context(pi_context *context);
/* The first request to end sets the event and is recorded; the second ends the program. The event
 * must stay valid until signals_restore. */
void signals_notify(const os_event *event);
/* Ends signals_cancel_context or signals_notify. Call it before the context is destroyed. */
void signals_restore(void);

/* On any thread: as a request to end, of a command that called signals_notify; false: none did. */
bool signals_ask_to_end(void);
/* Number of the recorded signal; 0: none; SIGNALS_ASKED: signals_ask_to_end. */
enum { SIGNALS_ASKED = -1 };
int signals_caught(void);
/* Removes unfinished output files and ends the program as this signal would have ended it. */
void signals_end(int number);

#endif
