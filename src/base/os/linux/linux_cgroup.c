/* linux_cgroup.c: walking control groups. */
#include "linux_cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { CGROUP_PATH_MAX = 1024 }; /* bytes */

void cgroup_walk(const char *root, const char *group, cgroup_visit *visit, void *user) {
    char folder[CGROUP_PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%s%s", root, group);
    if (n < 0 || (size_t)n >= sizeof folder) return;
    for (;;) {
        visit(folder, user);
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= strlen(root) || !slash) return;
        *slash = '\0';
    }
}

/* Lines are "hierarchy:controllers:/path"; version 2 is hierarchy 0 without controllers. */
void cgroup_walk_own(const char *controller, cgroup_visit *visit, void *user) {
    char line[CGROUP_PATH_MAX], root[CGROUP_PATH_MAX];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        size_t n = strlen(path);
        if (n > 0 && path[n - 1] == '/') path[n - 1] = '\0';
        bool unified = controllers[1] == '\0';
        if (!unified && (!controller || strcmp(controllers + 1, controller) != 0)) continue;
        snprintf(root, sizeof root, "/sys/fs/cgroup%s%s", unified ? "" : "/",
                 unified ? "" : controller);
        cgroup_walk(root, path, visit, user);
    }
    fclose(f);
}
