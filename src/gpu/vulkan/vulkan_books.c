/* vulkan_books.c: the code books of the IQ formats, which shaders read from device memory: the
 * largest has 2,048 points, more than the constants of a shader can hold. */
#include <assert.h>
#include <stddef.h>

#include "quant_grids.h"
#include "vulkan.h"
#include "vulkan_ops.h"

#define POINT(v)      (uint16_t)(v)
#define GRID_ROW(...) QUANT_GRID_ROW(POINT, __VA_ARGS__)
static const struct books {
    uint16_t iq1[2048], iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq3_xxs[256], iq3_s[512];
} books = {.iq1 = {QUANT_GRID_IQ1(GRID_ROW)},
           .iq2_xxs = {QUANT_GRID_IQ2_XXS(GRID_ROW)},
           .iq2_xs = {QUANT_GRID_IQ2_XS(GRID_ROW)},
           .iq2_s = {QUANT_GRID_IQ2_S(GRID_ROW)},
           .iq3_xxs = {QUANT_GRID_IQ3_XXS(GRID_ROW)},
           .iq3_s = {QUANT_GRID_IQ3_S(GRID_ROW)}};
static_assert(offsetof(struct books, iq1) == BOOK_IQ1 &&
                  offsetof(struct books, iq2_xxs) == BOOK_IQ2_XXS &&
                  offsetof(struct books, iq2_xs) == BOOK_IQ2_XS &&
                  offsetof(struct books, iq2_s) == BOOK_IQ2_S &&
                  offsetof(struct books, iq3_xxs) == BOOK_IQ3_XXS &&
                  offsetof(struct books, iq3_s) == BOOK_IQ3_S && sizeof books == BOOKS_BYTES,
              "as in the shaders");

pi_status vulkan_books_open(gpu_device *d, pi_error *err) {
    uint64_t at = 0;
    gpu_stream *s = NULL;
    os_mutex_lock(&d->slot->mutex);
    const bool there = d->slot->books != 0;
    const VkResult r = there ? VK_SUCCESS : vulkan_slot_alloc(d->slot, sizeof books, &at);
    os_mutex_unlock(&d->slot->mutex);
    if (there) return PI_OK;
    if (r != VK_SUCCESS) return vulkan_error(err, r, "no memory for code books");
    pi_status status = vulkan_stream_create(d, &s, err);
    if (status == PI_OK) {
        vulkan_upload(s, (void *)(uintptr_t)at, &books, sizeof books);
        status = vulkan_stream_sync(s, err);
    }
    vulkan_stream_destroy(s);
    os_mutex_lock(&d->slot->mutex);
    if (status == PI_OK) d->slot->books = at;
    os_mutex_unlock(&d->slot->mutex);
    return status;
}
