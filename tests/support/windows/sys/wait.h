/* sys/wait.h: statuses of system() and pclose(), for tests of Windows. */
#ifndef TEST_SYS_WAIT_H
#define TEST_SYS_WAIT_H

#define WIFEXITED(status)   ((status) >= 0)
#define WEXITSTATUS(status) ((status) >> 8)
#define WTERMSIG(status)    0

#endif
