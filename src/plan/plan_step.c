/* plan_step.c: columns of the list of operations. */
#include "plan_step.h"

const char *plan_op_name(plan_op op) {
    static const char *const names[OP_COUNT] = {
#define PLAN_OP(name, text, ...) [OP_##name] = (text),
#include "ops.def"
    };
    return (unsigned)op < OP_COUNT ? names[op] : "unknown";
}

plan_args plan_args_of(plan_op op) {
    static const plan_args args[OP_COUNT] = {
#define PLAN_OP(name, text, its_args, ...) [OP_##name] = ARGS_##its_args,
#include "ops.def"
    };
    return args[op];
}

plan_reads plan_op_reads(plan_op op) {
    static const plan_reads reads[OP_COUNT] = {
#define PLAN_OP(name, text, args, print, its_reads, ...) [OP_##name] = (its_reads),
#include "ops.def"
    };
    return reads[op];
}
