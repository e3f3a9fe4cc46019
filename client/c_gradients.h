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
 * The gradient of a resource variable, given by its handle, is dense and has the shape of its
 * value. Conditionals and loops are differentiated, also nested ones and loops that span tasks; the
 * forward loop then counts its iterations and keeps the values that the gradient needs [CF 5.1]. A
 * call of a function, and If, Case, While and For, are differentiated by the master, as
 * SymbolicGradient, which computes the function again: what is random in it differs from the first
 * time, and updates of variables that its values depend on happen again. Errors: UNIMPLEMENTED
 * names an op whose derivative is not written, or an x or y within a loop; INVALID_ARGUMENT where
 * no y needs an x.
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
