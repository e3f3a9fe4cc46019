/* What executions of nodes have taken, and how large their values were, as sampled steps have
 * measured it. The placer reads a row in place of the estimate of the op's cost row
 * (kernels/cost.h) or of a guess at a size (expected_shapes.h).
 *
 * The key of a time is the op, its attrs, the type of its first input, the shapes of its inputs,
 * and the type of the device. Each size is rounded up to a power of two, so that batches of about
 * one size share a row. A size that nobody knows yet is "?". A time is that of a device as fast as
 * the machine of the cost rows (kernels/rates.h), so tasks of unequal speed share a row.
 *
 * The key of a size is the node's name and op, what is known of the shape, and a dimension of it.
 * The row's number is a count of elements, at least 1, or the number of dimensions.
 *
 *   "MatMul float 128x1024,1024x64 CPU 5bd1e9955bd1e995"    the last part is a hash of the attrs
 *   "size of _feed_x_0 _MrFeed ?x1024 9ae16a3b2f90404f dim 0"    and of the whole name
 *
 * Other work on a host can only lengthen an execution, so a time that is shorter than the row's
 * counts for a quarter, and a longer one for a sixteenth. The first times count for more: together
 * they are averaged. Any thread. */
#ifndef MILLRACE_MASTER_COMPILE_COST_COST_TABLE_H
#define MILLRACE_MASTER_COMPILE_COST_COST_TABLE_H

#include "common/base/str.h"
#include "common/graph/graph.h"

enum {
    COST_TABLE_MAX_ROWS = 65536, /* a row that comes later replaces an old one */
    COST_KEY_MAX_BYTES = 600,
    COST_MAX_COUNT = 1000000000,
};
/* Longer executions waited for something, or were stopped on the way. */
#define COST_MAX_NS 1e11

struct cost_table;
struct cost_table *cost_table_new(void);
void cost_table_free(struct cost_table *table); /* accepts NULL */

/* Appends the key of an execution with these inputs, node->n_data shapes. */
void cost_key_write(struct str *out, const char *device_type, const struct node *node,
                    const struct shape *in);

enum { COST_RANK = -1 };
/* Appends the beginning of the keys of an output's sizes; `known` is its static shape. */
void cost_size_key_write(struct str *out, const struct node *node, struct shape known);
/* Appends the rest: a dimension, or COST_RANK for the number of dimensions. */
void cost_size_key_end(struct str *key, int dim);

/* `n` executions took `ns` each, or had that size. What cannot be right is left out. */
void cost_table_note(struct cost_table *table, const char *key, double ns, int64_t n);
/* Returns the time of an execution, or the size; 0: not measured. `table` may be NULL. */
double cost_table_find(struct cost_table *table, const char *key);
int cost_table_n_rows(struct cost_table *table);
/* How often the table has changed. */
uint64_t cost_table_n_changes(struct cost_table *table);
/* Appends a JSON list of at most max_rows rows; then one more says how many are left out. */
void cost_table_describe(struct cost_table *table, int max_rows, struct str *out);

/* ---- the file (--cost-file) ---- */

/* Appends the file's text: a line "millrace costs 1", then a line "NS COUNT KEY" for each row. */
void cost_table_print(struct cost_table *table, struct str *out);
/* Adds the rows of a text. Nothing is added on an error: INVALID_ARGUMENT with the line. */
struct status *cost_table_parse(struct cost_table *table, struct span text) MUST_USE;
/* Reads the file; one that does not exist has no rows. Errors: INVALID_ARGUMENT, UNAVAILABLE, with
 * the path. Blocks. */
struct status *cost_file_read(struct cost_table *table, const char *path) MUST_USE;
/* Replaces the file as a whole, after the new one is on the disk. Errors: UNAVAILABLE. Blocks. */
struct status *cost_file_write(struct cost_table *table, const char *path) MUST_USE;

#endif
