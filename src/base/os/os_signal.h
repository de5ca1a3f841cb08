/* os_signal.h: signals, faults, and how the program ends.
 *
 * Handlers run on any thread at any moment. In a handler only functions that are documented as
 * async-signal-safe may be called; all functions here are. */
#ifndef BASE_OS_SIGNAL_H
#define BASE_OS_SIGNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void os_signal_handler(int number);

/* Handles the signals that ask the program to end: interrupt, terminate, hang up. A hang-up that
 * was ignored when the program started stays ignored (nohup). */
void os_signals_on_request(os_signal_handler *handler);
/* Handles the signals that end the program: quit, and too much CPU time. */
void os_signals_on_end(os_signal_handler *handler);
/* Writes to a closed pipe, or beyond the permitted size of a file, fail instead of raising a
 * signal. */
void os_signals_ignore_writes(void);

/* Handles accesses to pages that cannot be read. `address` is NULL when another program sent the
 * signal. After the handler returns, the fault goes to the previous handler; a sent signal ends the
 * program. */
typedef void os_fault_handler(const void *address);
void os_signals_on_fault(os_fault_handler *handler);

/* Ends the program by the signal's default action, so that the parent process sees the signal. */
_Noreturn void os_signal_end(int number);
void os_signal_quit(void);    /* like Ctrl-\: ends the program unless handled */
void os_signal_suspend(void); /* stops the program until its shell continues it */

_Noreturn void os_end(int status); /* at once: without exit handlers, buffers are lost */
void os_wait_for_end(void);        /* until another thread ends the program, or a signal arrives */
/* Writes to standard error, past its buffer. */
void os_stderr_put(const char *text, size_t n);
bool os_stderr_is_terminal(void);

/* A flag that a handler sets and a thread waits for. */
typedef struct os_event {
    intptr_t ends[2];
} os_event;

/* Returns 0 or an error number. */
int os_event_create(os_event *e);
void os_event_close(os_event *e);
void os_event_set(const os_event *e);
/* Waits until the event is set, at most `seconds`; may return early. */
void os_event_wait(const os_event *e, double seconds);

#endif
