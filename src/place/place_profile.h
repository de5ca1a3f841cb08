/* place_profile.h: machine descriptions as JSON files: written by users, or saved measurements of
 * this machine. docs/placement.md has the format. */
#ifndef PLACE_PLACE_PROFILE_H
#define PLACE_PLACE_PROFILE_H

#include "gpu.h"
#include "place.h"

/* PI_ERR_FORMAT, PI_ERR_RANGE: the message names file and key; also errors of reading the file. */
pi_status place_profile_read(const char *path, place_machine *out, pi_error *err);
/* Writes the file atomically; creates missing folders. */
pi_status place_profile_write(const char *path, const place_machine *m, pi_error *err);
/* Whether a saved description matches this machine's CPU; other machines may share the folder. */
bool place_profile_is_here(const place_machine *m);

/* Reads the file `cache` (NULL: none). False: it does not have figures of this machine with this
 * GPU. */
bool place_profile_has_gpu(const char *cache, const char *gpu_name, place_machine *out);

/* This machine with a GPU: measured figures from the file `cache` (NULL: none), or published
 * figures. Whether those of the GPU are measured. */
bool place_profile_of_gpu(const gpu_info *info, const char *cache, place_machine *out);

#endif
