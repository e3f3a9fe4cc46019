/* Finds LAPACK's routines in the BLAS library; see lapack.h. */
#include "kernels/cpu/linalg/lapack.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "kernels/cpu/blas.h"

static struct lapack table;
static bool is_loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* `format` has a %c for the type's letter. */
static bool find(char letter, const char *format, void *to) {
    char name[32];
    snprintf(name, sizeof(name), format, letter);
    void *symbol = blas_symbol(name);
    memcpy(to, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static bool load_type(char letter, struct lapack_type *type) {
    bool is_complex = letter == 'c' || letter == 'z';
    const struct {
        const char *format;
        void *to;
    } routines[] = {{"%cpotrf_", &type->potrf},
                    {"%cgetrf_", &type->getrf},
                    {"%cgetrs_", &type->getrs},
                    {"%cgetri_", &type->getri},
                    {"%cgeqrf_", &type->geqrf},
                    {is_complex ? "%cungqr_" : "%corgqr_", &type->ungqr},
                    {"cblas_%ctrsm", &type->trsm},
                    {"%cgesdd_", &type->gesdd},
                    {is_complex ? "%cheevd_" : "%csyevd_", &type->heevd},
                    {"%cgelsd_", &type->gelsd},
                    {"%cgeev_", &type->geev},
                    {"%cgees_", &type->gees}};
    for (size_t i = 0; i < ARRAY_LEN(routines); i++) {
        if (!find(letter, routines[i].format, routines[i].to))
            return false;
    }
    return true;
}

static void load(void) {
    is_loaded = load_type('s', &table.f32) && load_type('d', &table.f64) &&
                load_type('c', &table.c64) && load_type('z', &table.c128);
}

const struct lapack *lapack_get(void) {
    pthread_once(&once, load);
    return is_loaded ? &table : NULL;
}
