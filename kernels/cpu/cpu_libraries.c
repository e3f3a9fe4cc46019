/* Describes libraries and instruction sets of the CPU's kernels. */
#include "kernels/cpu/cpu_libraries.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/emit/emit.h"
#include "kernels/cpu/onednn.h"
#include "kernels/support/isa.h"

static bool may_execute_what_it_writes(void) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return false;
    bool may = mprotect(page, size, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
    munmap(page, size);
    return may;
}

static void add_library(const char *name, const char *text, struct str *out) {
    str_addf(out, ",\"%s\":", name);
    if (!text) {
        str_add(out, "null");
        return;
    }
    str_add_char(out, '"');
    str_add_json_escaped(out, text, strlen(text));
    str_add_char(out, '"');
}

void cpu_libraries_describe(struct str *out) {
    struct str blas = STR_INIT, onednn = STR_INIT;
    bool has_blas = blas_describe(&blas), has_onednn = onednn_describe(&onednn);
    str_addf(out, "{\"instructions\":\"%s\",\"jit\":%s",
             cpu_has_avx512() ? "avx512"
             : cpu_has_avx2() ? "avx2"
                              : "base",
             may_execute_what_it_writes() ? "true" : "false");
    str_addf(out, ",\"fused_code\":%s,\"fused_runs\":%" PRId64, emit_is_on() ? "true" : "false",
             emit_n_compiled());
    add_library("blas", has_blas ? str_text(&blas) : NULL, out);
    add_library("onednn", has_onednn ? str_text(&onednn) : NULL, out);
    str_add_char(out, '}');
    str_fini(&blas);
    str_fini(&onednn);
}
