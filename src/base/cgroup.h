/* cgroup.h: the control groups of Linux that limit a process: its own and those above it. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

/* Sees the folder of one group, "/sys/fs/cgroup/a/b". */
typedef void cgroup_visit(const char *folder, void *user);

/* The group `group` ("/a/b", or "") below `root` (/sys/fs/cgroup) and the groups above it, up to
 * the root. Paths of more than 1,023 bytes are not visited. */
void cgroup_walk(const char *root, const char *group, cgroup_visit *visit, void *user);
/* The same for the groups of this process: of version 2, and of version 1 those of `controller`
 * ("memory"); NULL: none of version 1. */
void cgroup_walk_own(const char *controller, cgroup_visit *visit, void *user);

#endif
