/* Configuration: INI files, cluster lists and TF_CONFIG. The first byte says which. */
#include <stdlib.h>

#include "common/base/options.h"
#include "rpc/membership/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct values {
    const char *text;
    bool flag;
    int64_t count, bytes, time_ms;
    int choice;
};

static const char *const choices[] = {"a", "b", NULL};
static const struct option_row rows[] = {
    {.name = "text", .kind = OPTION_STRING, .offset = offsetof(struct values, text)},
    {.name = "flag", .kind = OPTION_BOOL, .offset = offsetof(struct values, flag)},
    {.name = "count",
     .kind = OPTION_INT,
     .offset = offsetof(struct values, count),
     .min = -5,
     .max = 5},
    {.name = "bytes", .kind = OPTION_BYTES, .offset = offsetof(struct values, bytes)},
    {.name = "time", .kind = OPTION_DURATION, .offset = offsetof(struct values, time_ms)},
    {.name = "choice",
     .kind = OPTION_CHOICE,
     .offset = offsetof(struct values, choice),
     .choices = choices},
};
static const struct options_spec spec = {
    .program = "fuzz", .section = "fuzz", .summary = "", .rows = rows, .n_rows = ARRAY_LEN(rows)};

static void try_ini(struct span text) {
    struct values values = {0};
    struct options options;
    struct str printed = STR_INIT;
    options_init(&options, &spec, &values);
    status_unref(options_read_ini(&options, "fuzz.ini", text));
    options_print(&options, &printed);
    CHECK(values.count >= -5 && values.count <= 5 && values.bytes >= 0 && values.time_ms >= 0 &&
          (values.choice == 0 || values.choice == 1));
    str_fini(&printed);
    options_fini(&options);
}

/* What was accepted prints as something that is accepted again, and prints the same. */
static void check_spec(const struct cluster_spec *cluster) {
    struct str first = STR_INIT, second = STR_INIT;
    struct cluster_spec again;
    cluster_spec_init(&again);
    cluster_spec_print(cluster, &first);
    struct status *st = cluster_spec_parse(str_text(&first), &again);
    CHECK(!st);
    cluster_spec_print(&again, &second);
    CHECK(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    cluster_spec_fini(&again);
    str_fini(&first);
    str_fini(&second);
}

static void try_cluster(const char *text, bool is_json) {
    struct cluster_spec cluster;
    const char *job;
    int index;
    cluster_spec_init(&cluster);
    struct status *st = is_json ? cluster_spec_parse_tf_config(text, &cluster, &job, &index)
                                : cluster_spec_parse(text, &cluster);
    if (!st)
        check_spec(&cluster);
    status_unref(st);
    cluster_spec_fini(&cluster);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    char *text = xstrndup((const char *)data + 1, size - 1);
    if (data[0] % 3 == 0)
        try_ini((struct span){(const char *)data + 1, size - 1});
    else
        try_cluster(text, data[0] % 3 == 1);
    free(text);
    return 0;
}
