/* cluster_shell.h: command lines that start several ranks on this machine. */
#ifndef TEST_CLUSTER_SHELL_H
#define TEST_CLUSTER_SHELL_H

#include "cli_shell.h"

#define CLUSTER_BUNDLED TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf"
#define CLUSTER_RUN     "run -q -t 1 --temp 0 -p 'Once upon a time' "

/* As sh(), with functions:
 *
 *   mpi N ARGUMENTS       runs the program on N ranks, at most 60 seconds
 *   ranks ARGUMENTS       mpirun with these arguments, at most 60 seconds
 *   mpi_in_background N ARGUMENTS     $m is the process of mpirun
 *   victim RANK           prints the process of a rank of $m
 *   slow_begin MS GBIT    puts the names of two networks of slow_network.c, and the options with
 *                         which mpirun starts a rank in each, into $n-1, $n-2 and $slow; status 77:
 *                         not possible here
 *   slow_end              removes them */
int sh_mpi(const char *format, ...);
/* Calls check(MODEL, TOKENS) for recorded models of the conformance data: all, or every n-th of
 * each folder. Skips the test without the data. */
void cluster_each_model(int n, void check(const char *model, const char *tokens));
/* Whether networks can be slowed; says so if not. */
int cluster_has_networks(void);

#endif
