/* windows_signal.c: console events and exceptions.
 *
 * The system calls a handler of console events on a separate thread, while the program's threads
 * continue. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>

#include "os_signal.h"
#include "windows_call.h"
#include "windows_terminal.h"

static _Atomic(os_signal_handler *) on_request;
static _Atomic(os_fault_handler *) on_fault;

/* The exit status of a program that Ctrl-C ended, STATUS_CONTROL_C_EXIT. Shells know it. */
static const UINT status_interrupted = 0xC000013Au;

/* When a console is closed, a user logs off or the system shuts down, the process ends as soon as
 * the handler returns, or after five seconds. It therefore never returns: the program ends when the
 * request has been carried out. */
static BOOL WINAPI on_event(DWORD event) {
    os_signal_handler *handler = atomic_load(&on_request);
    if (!handler) return FALSE;
    bool key = event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT;
    handler(key ? SIGINT : SIGTERM);
    if (!key) Sleep(INFINITE);
    return TRUE;
}

void os_signals_on_request(os_signal_handler *handler) {
    if (!atomic_exchange(&on_request, handler)) SetConsoleCtrlHandler(on_event, TRUE);
}

/* No other event ends a program. */
void os_signals_on_end(os_signal_handler *handler) {
    (void)handler;
}

/* Writes never raise a signal here. */
void os_signals_ignore_writes(void) {}

/* Other exceptions, and this one afterwards, go to the system, which ends the program. */
static LONG WINAPI on_exception(EXCEPTION_POINTERS *exception) {
    const EXCEPTION_RECORD *r = exception->ExceptionRecord;
    if (r->ExceptionCode == EXCEPTION_IN_PAGE_ERROR && r->NumberParameters >= 2)
        atomic_load (&on_fault)((const void *)r->ExceptionInformation[1]);
    return EXCEPTION_CONTINUE_SEARCH;
}

void os_signals_on_fault(os_fault_handler *handler) {
    if (!atomic_exchange(&on_fault, handler)) AddVectoredExceptionHandler(1, on_exception);
}

void os_signal_end(int number) {
    windows_console_restore();
    TerminateProcess(GetCurrentProcess(), number == SIGINT || number == SIGTERM
                                              ? status_interrupted
                                              : 128 + (UINT)number);
    for (;;) Sleep(INFINITE); /* the end may take a moment */
}

/* Keys that other systems have. */
void os_signal_quit(void) {}

void os_signal_suspend(void) {}

void os_end(int status) {
    windows_console_restore();
    TerminateProcess(GetCurrentProcess(), (UINT)status);
    for (;;) Sleep(INFINITE);
}

void os_wait_for_end(void) {
    Sleep(INFINITE);
}

void os_stderr_put(const char *text, size_t n) {
    DWORD put;
    (void)WriteFile(GetStdHandle(STD_ERROR_HANDLE), text, (DWORD)n, &put, NULL);
}

bool os_stderr_is_terminal(void) {
    return windows_is_console(GetStdHandle(STD_ERROR_HANDLE));
}

int os_event_create(os_event *e) {
    HANDLE h = CreateEventW(NULL, TRUE, FALSE, NULL);
    *e = (os_event){.ends = {(intptr_t)h}};
    return h ? 0 : windows_last();
}

void os_event_close(os_event *e) {
    CloseHandle((HANDLE)e->ends[0]);
}

void os_event_set(const os_event *e) {
    SetEvent((HANDLE)e->ends[0]);
}

void os_event_wait(const os_event *e, double seconds) {
    WaitForSingleObject((HANDLE)e->ends[0], (DWORD)(seconds * 1e3));
}
