/* gpu_support.c: what the kernels of src/gpu/cuda support. All backends built from these kernels
 * link this file, and so does the library, which also plans without a device. */
#include "gpu_support.h"

enum {
    HEAD_UNIT = 8,    /* elements of a head that a thread loads at a time */
    STREAM_UNIT = 4,  /* elements of a residual stream that a thread loads at a time */
    QUANT_GROUP = 32, /* elements of an int8 group */
};

static bool is_head(int32_t n, int32_t most) {
    return n <= most && n % HEAD_UNIT == 0;
}

static bool fits(gpu_op op, const gpu_shape *s) {
    switch (op) {
    case GPU_OP_ROPE_STORE:
        if (s->latent) return is_head(s->index_dim, GPU_MAX_HEAD); /* the index of MLA */
        if (s->joint && !is_head(s->index_dim, GPU_MAX_HEAD)) return false;
        return is_head(s->head_dim, GPU_MAX_HEAD) && is_head(s->v_dim, GPU_MAX_HEAD);
    case GPU_OP_HEADS:
        if (s->joint) return true;
        return is_head(s->head_dim, GPU_MAX_LATENT);
    case GPU_OP_LATENT_STORE:
        return is_head(s->head_dim, GPU_MAX_LATENT);
    case GPU_OP_ATTENTION:
        return is_head(s->head_dim, s->latent || s->joint ? GPU_MAX_LATENT
                                    : s->index_dim > 0    ? GPU_MAX_SPARSE
                                    : s->alibi            ? GPU_MAX_ALIBI
                                                          : GPU_MAX_HEAD) &&
               s->v_dim % HEAD_UNIT == 0;
    case GPU_OP_COMPRESS:
        return is_head(s->index_dim, GPU_MAX_HEAD) && is_head(s->head_dim, GPU_MAX_HEAD);
    case GPU_OP_FIND_BLOCKS:
        return is_head(s->index_dim, GPU_MAX_SPARSE);
    case GPU_OP_CONV:
        return s->n_taps <= GPU_MAX_TAPS;
    case GPU_OP_RECUR:
        return s->n_state <= GPU_MAX_STATE;
    case GPU_OP_MIX:
    case GPU_OP_MERGE:
        return s->n_embd % STREAM_UNIT == 0 && s->n_stream <= GPU_MAX_STREAMS;
    case GPU_OP_HYPER:
    case GPU_OP_HYPER_MEAN:
        return s->n_stream <= GPU_MAX_STREAMS;
    case GPU_OP_PAST:
        return s->n_stream <= GPU_MAX_PASTS;
    case GPU_OP_ROUTE:
        return s->n_expert <= GPU_MAX_EXPERTS;
    case GPU_OP_PREDICT:
        return s->n_rank <= GPU_MAX_RANK;
    case GPU_OP_EXPERT_IN:
        return s->n_ff_expert % QUANT_GROUP == 0;
    default:
        return true;
    }
}

bool gpu_kernels_support(gpu_op op, quant_type type, const gpu_shape *shape) {
    return (type == GPU_NO_TYPE || gpu_type_supported(type)) && (!shape || fits(op, shape));
}

const char *gpu_op_name(gpu_op op) {
    static const char *const names[] = {
#define NAME_OF(name, NAME, args) #name,
        GPU_OPS(NAME_OF, NAME_OF)
#undef NAME_OF
    };
    return names[op];
}
