/* Prints and reads the text form of a graph, for tests of passes and --dump-graph. One node a line,
 * in the order of ids:
 *
 *   a = Const() {dtype=float, value=float[2]{1, 2}}
 *   v = VariableV2() {dtype=float, shape=[2]} @/job:ps/task:0
 *   s = AddV2(a, v:0, ^init) {T=float} @/device:CPU:0 -> 2
 *
 * Inputs are `name` (output 0), `name:1` and `^name` (control). Attrs that equal the op's default
 * are left out. The requested device is after `@`, the placement (an index into the device table)
 * after `->`. `#` starts a comment. The reader accepts what the printer prints.
 *
 * The reader also accepts functions, before the nodes that call them; the printer omits them.
 * Inputs are written as in a FunctionDef:
 *
 *   function twice(x: T, n: float) -> (y: T) {T=type} stateful {
 *     d = AddV2(x, x) {T=$T}
 *     p = Print(d:z:0, ^d) {…}
 *     return y=d:z:0, ^p
 *   }
 *
 * The type of an argument is a dtype or an attr of the function; `N*T` is a run of tensors. `^p`
 * among the returns is a control output. */
#ifndef MILLRACE_COMMON_GRAPH_GRAPH_TEXT_H
#define MILLRACE_COMMON_GRAPH_GRAPH_TEXT_H

#include "common/base/str.h"
#include "common/graph/graph.h"

void graph_print(const struct graph *graph, struct str *out);
/* Adds the nodes of the text. Inputs may name nodes that come later. Errors: INVALID_ARGUMENT with
 * the line number. */
struct status *graph_parse(const char *text, struct graph *graph) MUST_USE;
/* Reads one attr of an op, NAME=VALUE, and moves *in past it. An attr that is in no signature has
 * the type in which it is written. The value is in the arena of the graph. */
struct status *text_take_attr(struct graph *graph, const struct op_signature *op, struct span *in,
                              struct attr *ret) MUST_USE;

#endif
