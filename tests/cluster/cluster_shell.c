/* cluster_shell.c: see cluster_shell.h. Processes are killed by their ids. */
#include "cluster_shell.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "shared_data.h"

enum { LINE = 8192 };

/* clang-format off */
static const char functions[] =
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
    "ranks() { timeout -k 5 60 mpirun --oversubscribe \"$@\"; }; "
    "mpi() { k=$1; shift; ranks -n $k $PI \"$@\"; }; "
    "mpi_in_background() { k=$1; shift; mpirun --oversubscribe -n $k $PI \"$@\" & m=$!; }; "
    "victim() { for i in 1 2 3 4 5 6 7 8 9; do v=$(pgrep -P $m powerinfer | sed -n $(($1 + 1))p); "
    "[ -n \"$v\" ] && break; sleep 0.1; done; echo $v; }; "
    "slow_begin() { n=pi$$ a=10.96.$(($$ % 250)) d=slow$(($$ % 100000)); s=" TEST_BINARY_DIR
    "/slow_network; ip netns add $n-1 && ip netns add $n-2 || exit 77; "
    "$s join $1 $2 $n-1 $n-2 -$d >joined & j=$!; "
    "for i in $(seq 50); do grep -q ready joined && break; sleep 0.1; done; "
    "for i in 1 2; do ip -n $n-$i addr add $a.$i/24 dev slow0; "
    "ip -n $n-$i link set slow0 mtu 65520 up; ip -n $n-$i link set lo up; done; "
    "ip addr add $a.254/24 dev $d; ip link set $d mtu 65520 up; "
    /* daemons of OpenMPI that create the same folder at the same time fail: each has its own */
    "printf '#!/bin/sh\\nh=$1\\nshift\\nn=%s-${h##*.}\\nmkdir -p /tmp/$n\\nexport TMPDIR=/tmp/$n\\n"
    "exec ip netns exec $n sh -c \"$*\"\\n' $n >agent; "
    "chmod +x agent; slow=\"--mca plm_rsh_agent $PWD/agent --mca btl tcp,self "
    "--mca btl_tcp_if_include $a.0/24 --mca oob_tcp_if_include $a.0/24 --bind-to none "
    "--host $a.1:1,$a.2:1\"; }; "
    "slow_end() { kill $j; wait $j; ip netns del $n-1; ip netns del $n-2; "
    "rm -rf /tmp/$n-1 /tmp/$n-2; }; ";
/* clang-format on */

int sh_mpi(const char *format, ...) {
    char line[LINE];
    size_t n = (size_t)snprintf(line, sizeof line, "%s", functions);
    va_list values;
    va_start(values, format);
    vsnprintf(line + n, sizeof line - n, format, values);
    va_end(values);
    return sh(line);
}

void cluster_each_model(int n, void check(const char *model, const char *tokens)) {
    static const char *const folders[] = {"arch", "more", "next"};
    for (size_t k = 0; k < sizeof folders / sizeof folders[0]; k++) {
        char name[32], path[512], pattern[520], tokens[512];
        glob_t found;
        snprintf(name, sizeof name, "conformance/%s", folders[k]);
        if (!shared_path(path, sizeof path, name)) skip();
        snprintf(pattern, sizeof pattern, "%s/*.gguf", path);
        assert_int_equal(glob(pattern, 0, NULL, &found), 0);
        for (size_t i = 0; i < found.gl_pathc; i += (size_t)n) {
            const char *model = found.gl_pathv[i];
            snprintf(tokens, sizeof tokens, "%.*s.tokens.txt", (int)strlen(model) - 5, model);
            if (access(tokens, R_OK) == 0) check(model, tokens);
        }
        globfree(&found);
    }
}

int cluster_has_networks(void) {
    if (geteuid() == 0 && sh("command -v ip && [ -c /dev/net/tun ]") == 0) return 1;
    fprintf(stderr, "*** SKIPPED: slow networks: they need root, iproute2 and TUN ***\n");
    return 0;
}
