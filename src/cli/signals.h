/* signals.h: signal handling: when the program is asked to end (SIGINT, SIGTERM, SIGHUP) or is
 * ended (SIGQUIT, SIGXCPU, SIGBUS). Unless a command has something to put in order first,
 * unfinished output files are removed and the program ends as the signal would have ended it.
 *
 * Signals are the one thing in the program that needs state outside of any function: the handler
 * can be given nothing. It lives in signals.c and is written before handlers are installed. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include "os_signal.h"
#include "powerinfer.h"

/* Once, at the very start. Installs the handlers; a mapped file that loses its pages ends the
 * program with one line and status 1. Makes up for descriptors 0..2 that the caller closed, so that
 * no file opened later takes their place, and turns SIGPIPE and SIGXFSZ into write errors. */
void signals_prepare(void);

/* The first signal that asks cancels `context` and is remembered; the second ends the program. */
void signals_cancel_context(pi_context *context);
/* The first signal that asks sets the event and is remembered; the second ends the program. The
 * event stays in place until signals_restore. */
void signals_notify(const os_event *event);
/* Ends either; before the context is destroyed. */
void signals_restore(void);

/* Number of the signal that was remembered; 0: none. */
int signals_caught(void);

#endif
