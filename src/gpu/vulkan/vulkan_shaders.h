/* vulkan_shaders.h: the shaders' code, embedded by the build. */
#ifndef GPU_VULKAN_VULKAN_SHADERS_H
#define GPU_VULKAN_VULKAN_SHADERS_H

#include <stdint.h>

typedef struct vulkan_shader {
    const uint8_t *begin, *end;         /* SPIR-V, aligned to 4 bytes */
    const uint8_t *dot_begin, *dot_end; /* with integer dot products; NULL: it has none */
} vulkan_shader;

extern const vulkan_shader vulkan_shaders[]; /* by vulkan_kernel */

#endif
