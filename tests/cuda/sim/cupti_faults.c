/* Reads what is wrong with the simulated CUPTI (cupti.h). */
#include "tests/cuda/sim/cupti.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cupti_faults faults = {.version = 130000};

static void read_one(const char *item) {
    const struct {
        const char *name;
        bool *flag;
        int *number;
    } rows[] = {{"version", NULL, &faults.version},    {"refuse", NULL, &faults.refusal},
                {"drop", NULL, &faults.n_drop},        {"late", &faults.late, NULL},
                {"shuffle", &faults.shuffle, NULL},    {"unknown", &faults.unknown, NULL},
                {"keep", &faults.keep, NULL},          {"zero", &faults.zero, NULL},
                {"wild", &faults.wild, NULL},          {"alien", &faults.alien, NULL},
                {"anonymous", &faults.anonymous, NULL}};
    size_t len = strcspn(item, ":");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strlen(rows[i].name) != len || strncmp(rows[i].name, item, len) != 0)
            continue;
        if (rows[i].flag != NULL)
            *rows[i].flag = true;
        else
            *rows[i].number = (int)strtol(item + len + (item[len] == ':'), NULL, 10);
        return;
    }
    fprintf(stderr, "MILLRACE_SIM_CUPTI: there is no fault %s\n", item);
    abort();
}

static void read_faults(void) {
    const char *text = getenv("MILLRACE_SIM_CUPTI");
    char *copy = strdup(text != NULL ? text : ""), *rest = copy, *item;
    while (copy != NULL && (item = strsep(&rest, ",")) != NULL)
        if (*item != '\0')
            read_one(item);
    free(copy);
}

const struct cupti_faults *cupti_faults(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_faults);
    return &faults;
}
