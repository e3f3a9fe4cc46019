/* Texts of graphs with loops, for the tests of the executor. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_TEXT_LOOP_H
#define MILLRACE_TESTS_UNIT_WORKER_TEXT_LOOP_H

/* while i < limit: i += 1, as a client builds it: eight nodes per iteration. */
#define LOOP(name, from, limit, parallel, body)                                                    \
    name "_e = Enter(" from ") {T=int32, frame_name=\"" name "\", parallel_iterations=" parallel   \
         "}\n" name "_l = Enter(" limit ") {T=int32, frame_name=\"" name                           \
         "\", is_constant=true, parallel_iterations=" parallel "}\n" name "_m = Merge(" name       \
         "_e, " name "_n) {T=int32, N=2}\n" name "_c = Less(" name "_m, " name                     \
         "_l) {T=int32}\n" name "_p = LoopCond(" name "_c)\n" name "_s = Switch(" name "_m, " name \
         "_p) {T=int32}\n" name "_b = Identity(" name "_s:1) {T=int32}\n" body name                \
         "_x = Exit(" name "_s) {T=int32}\n"
#define COUNT_BODY(name)                                                                     \
    name "_1 = Const(^" name "_b) {dtype=int32, value=int32[]{1}}\n" name "_a = AddV2(" name \
         "_b, " name "_1) {T=int32}\n" name "_n = NextIteration(" name "_a) {T=int32}\n"
#define INT(name, value) name " = Const() {dtype=int32, value=int32[]{" value "}}\n"

#endif
