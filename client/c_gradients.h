/* Gradients of the C client [WP 4.1]: adds the operations that compute them. Any thread; the call
 * locks the graph. */
#ifndef MILLRACE_CLIENT_C_GRADIENTS_H
#define MILLRACE_CLIENT_C_GRADIENTS_H

#include "client/c_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds operations that compute the gradient of the sum of all y by each x. `dx` gives the gradients
 * of some L by the y, one for each; NULL means ones. On success dy[i] is the gradient by x[i]. Its
 * oper is NULL where no gradient flows to x[i], for example through integers. (The names dx and dy
 * are TensorFlow's.) After an error the graph is unchanged.
 *
 * Gradients are dense, as in TensorFlow's C API: that of a gather, of a sparse segment or of a
 * resource variable, given by its handle, has the shape of the whole value. (The optimizers of
 * client/training update only the rows that were gathered.)
 *
 * Conditionals and loops are differentiated, also nested ones and loops that span tasks; the
 * forward loop then counts its iterations and keeps the values that the gradient needs [CF 5.1]. A
 * call of a function, and If, Case, While and For, are differentiated by the master, as
 * SymbolicGradient, which computes the function again: what is random in it differs from the first
 * time, and updates of variables that its values depend on happen again. TensorFlow's own servers
 * do this for functions, but not for If, Case, While and For: they fail the step with NOT_FOUND.
 *
 * Errors: NOT_FOUND names an op that has no derivative here, and says why; UNIMPLEMENTED names an x
 * or y within a loop; INVALID_ARGUMENT where no y needs an x.
 *
 * The new operations are named below `prefix`, which no operation may use yet; NULL means a free
 * name that begins with "gradients". */
void TF_AddGradients(TF_Graph *graph, TF_Output *y, int ny, TF_Output *x, int nx, TF_Output *dx,
                     TF_Status *status, TF_Output *dy);
void TF_AddGradientsWithPrefix(TF_Graph *graph, const char *prefix, TF_Output *y, int ny,
                               TF_Output *x, int nx, TF_Output *dx, TF_Status *status,
                               TF_Output *dy);

#ifdef __cplusplus
}
#endif
#endif
