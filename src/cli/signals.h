/* signals.h: Ctrl-C and SIGTERM, for commands that have something to put in order first. Without a
 * call from here the signals end the program as usual.
 *
 * Signals are the one thing in the program that needs state outside of any function: the handler
 * can be given nothing. It lives in signals.c and is written before handlers are installed. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include "powerinfer.h"

/* Makes up for descriptors 0..2 that the caller closed, so that no file opened later takes their
 * place, and turns SIGPIPE into a write error. Once, at the very start. */
void signals_prepare(void);

/* The first signal cancels `context` and is remembered; the second ends the program with
 * 128 + its number. */
void signals_cancel_context(pi_context *context);
/* The first signal removes unfinished output files and ends the program with 128 + its number. */
void signals_remove_output(void);
/* Back to the usual; before the context is destroyed. */
void signals_restore(void);

/* Number of the signal that was remembered; 0: none. */
int signals_caught(void);

#endif
