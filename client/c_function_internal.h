/* Declares what the files of the functions share. */
#ifndef MILLRACE_CLIENT_C_FUNCTION_INTERNAL_H
#define MILLRACE_CLIENT_C_FUNCTION_INTERNAL_H

#include "client/c_function.h"
#include "client/c_graph_internal.h"

struct TF_Function {
    char *name;
    struct str def; /* a serialized FunctionDef */
};

/* Takes the bytes of a FunctionDef, whose name it reads. */
struct status *function_new(const char *caller, struct str *def_take, TF_Function **ret) MUST_USE;

#endif
