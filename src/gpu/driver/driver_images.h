/* driver_images.h: kernels, compressed, as the build embeds them (driver_build.cmake). */
#ifndef GPU_DRIVER_DRIVER_IMAGES_H
#define GPU_DRIVER_DRIVER_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PTX runs on GPUs of its compute capability and later ones, AMD's code objects on one kind. */
typedef struct driver_image {
    const char *vendor, *target; /* "cuda", "sm_80"; "hip", "gfx1100" */
    int capability;              /* PTX: 80; code objects: 0 */
    const char *file;            /* "op_norm" */
    const uint8_t *bytes, *end;  /* gzip; its last four bytes are the size of the image */
} driver_image;

extern const driver_image driver_images[];
extern const size_t driver_n_images;

enum { DRIVER_TARGETS_TEXT = 256 };
/* A vendor's targets, "gfx1030,gfx90a"; false: there are none. */
bool driver_image_targets(const char *vendor, char text[DRIVER_TARGETS_TEXT]);

#endif
