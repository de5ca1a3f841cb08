/* linux_cgroup.h: the Linux control groups that limit this process: its group and all parents. */
#ifndef BASE_LINUX_CGROUP_H
#define BASE_LINUX_CGROUP_H

/* Called with the folder of one group, such as "/sys/fs/cgroup/a/b". */
typedef void cgroup_visit(const char *folder, void *user);

/* Visits the group `group` ("/a/b", or "") below `root` (/sys/fs/cgroup) and its parents up to the
 * root. Skips paths of more than 1,023 bytes. */
void cgroup_walk(const char *root, const char *group, cgroup_visit *visit, void *user);
/* Visits the groups of this process: the version 2 group, and the version 1 group of `controller`
 * ("memory"); with NULL no version 1 group. */
void cgroup_walk_own(const char *controller, cgroup_visit *visit, void *user);

#endif
