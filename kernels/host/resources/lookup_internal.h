/* What the kernels of tables share. For the lookup_*.c files only. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_LOOKUP_INTERNAL_H
#define MILLRACE_KERNELS_HOST_RESOURCES_LOOKUP_INTERNAL_H

#include "kernels/host/resources/lookup_table.h"
#include "kernels/support/state_internal.h"

/* The table of the handle in input 0, with a reference of its own. */
struct status *lookup_table_of_input(struct kernel_ctx *ctx, struct lookup_table **ret) MUST_USE;
static inline void lookup_table_unref(struct lookup_table *table) {
    if (table)
        object_unref(&table->object);
}
/* "Table localhost t is not initializable" for any but a static table. */
struct status *lookup_check_static(const struct kernel_ctx *ctx, const struct lookup_table *table) MUST_USE;

#endif
