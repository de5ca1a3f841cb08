/* driver_images.h: kernels, compressed, as the build embeds them (driver_images.cmake). */
#ifndef GPU_DRIVER_DRIVER_IMAGES_H
#define GPU_DRIVER_DRIVER_IMAGES_H

#include <stddef.h>
#include <stdint.h>

typedef struct driver_image {
    int arch;                   /* 80: PTX for sm_80 */
    const char *file;           /* "op_norm" */
    const uint8_t *bytes, *end; /* gzip; its last four bytes are the size of the text */
} driver_image;

extern const driver_image driver_images[];
extern const size_t driver_n_images;

#endif
