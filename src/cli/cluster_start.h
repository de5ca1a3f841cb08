/* cluster_start.h: the program as one of several ranks (powerinfer_cluster.h). */
#ifndef CLI_CLUSTER_START_H
#define CLI_CLUSTER_START_H

#include "cli.h"

/* Joins the other ranks if an MPI launcher started this process, or with --mpi, and sets
 * o->cluster. *works: this process is not rank 0 and runs cluster_work instead of the command.
 * Commands without stages start as always. Returns an exit status. */
int cluster_join(const command *c, cli_options *o, bool *works);
int cluster_work(const cli_options *o);
/* After the command; `status` is its exit status. Does not return if a rank was lost or `status` is
 * a failure while other ranks compute. */
void cluster_leave(cli_options *o, int status);
/* Writes a table of what every rank has and did. */
void cluster_print_table(FILE *out, const pi_rank *ranks, int n);
/* The table, or JSON with bench_put_ranks, for the ranks of a context. */
pi_status cluster_print(pi_context *context, FILE *out, bool json, pi_error *err);

#endif
