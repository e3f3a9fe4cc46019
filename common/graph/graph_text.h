/* The text form of a graph: what pass tests read and write, and `--dump-graph` prints. One node
 * a line, in id order:
 *
 *   a = Const() {dtype=float, value=float[2]{1, 2}}
 *   v = VariableV2() {dtype=float, shape=[2]} @/job:ps/task:0
 *   s = AddV2(a, v:0, ^init) {T=float} @/device:CPU:0 -> 2
 *
 * inputs `name` (output 0), `name:1`, `^name` (control); attrs that equal the op's default are
 * left out; `@` is the asked device; `->` the place (an index into the device table). `#` starts
 * a comment. The reader accepts what the printer prints.
 *
 * The reader takes functions too, before the nodes that call them (the printer leaves them out).
 * Inputs are spelt as in a FunctionDef:
 *
 *   function twice(x: T, n: float) -> (y: T) {T=type} stateful {
 *     d = AddV2(x, x) {T=$T}
 *     p = Print(d:z:0, ^d) {…}
 *     return y=d:z:0, ^p
 *   }
 *
 * an argument's type is a dtype, or an attr of the function; `N*T` is a run of tensors; `^p`
 * among the returns a control output. */
#ifndef MILLRACE_COMMON_GRAPH_GRAPH_TEXT_H
#define MILLRACE_COMMON_GRAPH_GRAPH_TEXT_H

#include "common/base/str.h"
#include "common/graph/graph.h"

void graph_print(const struct graph *graph, struct str *out);
/* Adds the text's nodes. Errors: INVALID_ARGUMENT with the line's number. Forward references are
 * allowed. */
struct status *graph_parse(const char *text, struct graph *graph) MUST_USE;

#endif
