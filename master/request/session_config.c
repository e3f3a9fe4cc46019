/* Reads a ConfigProto field by field. */
#include "master/request/session_config.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"

static struct status *malformed(const char *what) {
    return status_invalid("Malformed ConfigProto%s", what);
}

static struct status *read_optimizer_options(struct span in, struct session_config *ret) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&in, &field)) > 0)
        if (field.number == 3 && field.wire_type == 0)
            ret->no_optimizations = (int32_t)field.value == -1; /* OptimizerOptions.L0 */
    return more < 0 ? malformed(".graph_options.optimizer_options") : NULL;
}

/* An entry of map<string, AttrValue> parameter_map. */
static struct status *read_wish(struct span in, struct session_config *ret) {
    struct proto_field field;
    struct span key = {"", 0}, value = {"", 0}, text = {"", 0};
    int more;
    while ((more = proto_next(&in, &field)) > 0)
        if (proto_field_is(&field, 1, 2))
            key = field.bytes;
        else if (proto_field_is(&field, 2, 2))
            value = field.bytes;
    while (more == 0 && (more = proto_next(&value, &field)) > 0)
        if (proto_field_is(&field, 2, 2)) { /* AttrValue.s */
            text = field.bytes;
            more = 0;
        }
    if (more < 0)
        return malformed(".graph_options.rewrite_options.custom_optimizers");
    if (!span_is(key, "placement"))
        return status_invalid("ConfigProto: the optimizer millrace has no parameter '%.*s', only "
                              "'placement'",
                              (int)MIN(key.len, (size_t)100), key.data);
    if (!placement_find(text, &ret->placement))
        return status_invalid("ConfigProto: the optimizer millrace has the placements simple, "
                              "spread and cost, not '%.*s'",
                              (int)MIN(text.len, (size_t)100), text.data);
    ret->has_placement = true;
    return NULL;
}

/* A CustomGraphOptimizer {name 1, parameter_map 2}. Optimizers of other names are TensorFlow's. */
static struct status *read_optimizer(struct span in, struct session_config *ret) {
    struct proto_field field;
    bool is_ours = false;
    int more;
    for (struct span rest = in; (more = proto_next(&rest, &field)) > 0;)
        if (proto_field_is(&field, 1, 2))
            is_ours = span_is(field.bytes, "millrace");
    while (is_ours && more == 0 && proto_next(&in, &field) > 0)
        if (proto_field_is(&field, 2, 2))
            TRY(read_wish(field.bytes, ret));
    return more < 0 ? malformed(".graph_options.rewrite_options.custom_optimizers") : NULL;
}

static struct status *read_rewrite_options(struct span in, struct session_config *ret) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&in, &field)) > 0)
        if (proto_field_is(&field, 200, 2))
            TRY(read_optimizer(field.bytes, ret));
    return more < 0 ? malformed(".graph_options.rewrite_options") : NULL;
}

static struct status *read_graph_options(struct span in, struct session_config *ret) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&in, &field)) > 0)
        if (field.number == 2 && field.wire_type == 0)
            ret->recv_scheduling = field.value != 0;
        else if (field.number == 3 && field.wire_type == 2)
            TRY(read_optimizer_options(field.bytes, ret));
        else if (field.number == 4 && field.wire_type == 0)
            ret->build_cost_model = (int64_t)field.value;
        else if (field.number == 7 && field.wire_type == 0)
            ret->bfloat16_sends = field.value != 0;
        else if (field.number == 9 && field.wire_type == 0)
            ret->build_cost_model_after = (int64_t)field.value;
        else if (field.number == 10 && field.wire_type == 2)
            TRY(read_rewrite_options(field.bytes, ret));
    return more < 0 ? malformed(".graph_options") : NULL;
}

/* Reads an entry of map<string, int32> device_count. The number of devices of other types is the
 * worker's: a client without a GPU says "no GPU" in each session that it opens without a config,
 * and means its own process. */
static struct status *read_device_count(struct span in, struct session_config *ret) {
    struct proto_field field;
    struct span type = {"", 0};
    int32_t count = 0;
    int more;
    while ((more = proto_next(&in, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 2)
            type = field.bytes;
        else if (field.number == 2 && field.wire_type == 0)
            count = (int32_t)field.value;
    }
    if (more < 0)
        return malformed(".device_count");
    if (!span_is(type, "CPU"))
        return NULL;
    if (count > SESSION_MAX_CPU_DEVICES)
        return status_invalid(
            "ConfigProto.device_count asks for %d CPU devices; a task has at most %d", count,
            SESSION_MAX_CPU_DEVICES);
    ret->cpu_devices = MAX(count, 0);
    return NULL;
}

static struct status *read_filter(struct span text, struct session_config *ret) {
    struct device_name name;
    struct status *st = device_name_parse(text, &name);
    if (st)
        return status_prefix_take(st, "Invalid filter in ConfigProto.device_filters: ");
    ret->filters = xreallocarray(ret->filters, (size_t)ret->n_filters + 1, sizeof(*ret->filters));
    ret->filters[ret->n_filters++] = name;
    return NULL;
}

/* An entry of map<int32, string> tasks. */
static struct status *read_cluster_task(struct span in, struct span job,
                                        struct cluster_spec *cluster) {
    struct proto_field field;
    struct span address = {"", 0};
    int32_t index = 0;
    int more;
    while ((more = proto_next(&in, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 0)
            index = (int32_t)field.value;
        else if (field.number == 2 && field.wire_type == 2)
            address = field.bytes;
    }
    if (more < 0)
        return malformed(".cluster_def.job.tasks");
    if (cluster->n_tasks >= SESSION_MAX_CLUSTER_TASKS)
        return status_invalid("ConfigProto.cluster_def has more than %d tasks, the limit",
                              SESSION_MAX_CLUSTER_TASKS);
    return status_prefix_take(cluster_spec_add(cluster, job, index, address),
                              "ConfigProto.cluster_def: ");
}

/* A JobDef: a name, and tasks. */
static struct status *read_cluster_job(struct span in, struct cluster_spec *cluster) {
    struct proto_field field;
    struct span job = {"", 0}, rest = in;
    int more;
    while ((more = proto_next(&rest, &field)) > 0)
        if (field.number == 1 && field.wire_type == 2)
            job = field.bytes;
    if (more < 0)
        return malformed(".cluster_def.job");
    for (int i = 0; i < cluster->n_tasks; i++)
        if (span_is(job, cluster->tasks[i].job))
            return status_invalid("ConfigProto.cluster_def: job %s is listed twice",
                                  cluster->tasks[i].job);
    for (rest = in; proto_next(&rest, &field) > 0;)
        if (field.number == 2 && field.wire_type == 2)
            TRY(read_cluster_task(field.bytes, job, cluster));
    return NULL;
}

static struct status *read_cluster(struct span in, struct session_config *ret) {
    struct proto_field field;
    int more;
    if (!ret->cluster) {
        ret->cluster = xmalloc(sizeof(*ret->cluster));
        cluster_spec_init(ret->cluster);
    }
    while ((more = proto_next(&in, &field)) > 0)
        if (field.number == 1 && field.wire_type == 2)
            TRY(read_cluster_job(field.bytes, ret->cluster));
    return more < 0 ? malformed(".cluster_def") : NULL;
}

static void drop_cluster(struct session_config *config) {
    cluster_spec_fini(config->cluster);
    free(config->cluster);
    config->cluster = NULL;
}

struct status *session_config_parse(struct span config_proto, struct session_config *ret) {
    struct proto_field field;
    int more;
    *ret = (struct session_config){.filters = NULL};
    while ((more = proto_next(&config_proto, &field)) > 0) {
        bool is_bytes = field.wire_type == 2, is_number = field.wire_type == 0;
        if (field.number == 1 && is_bytes)
            TRY(read_device_count(field.bytes, ret));
        else if (field.number == 4 && is_bytes)
            TRY(read_filter(field.bytes, ret));
        else if (field.number == 7 && is_number)
            ret->allow_soft_placement = field.value != 0;
        else if (field.number == 8 && is_number)
            ret->log_device_placement = field.value != 0;
        else if (field.number == 10 && is_bytes)
            TRY(read_graph_options(field.bytes, ret));
        else if (field.number == 11 && is_number)
            ret->operation_timeout_ms = (int64_t)field.value;
        else if (field.number == 14 && is_bytes)
            TRY(read_cluster(field.bytes, ret));
        else if (field.number == 15 && is_number)
            ret->is_isolated = field.value != 0;
    }
    if (ret->cluster && ret->cluster->n_tasks == 0)
        drop_cluster(ret); /* as in TensorFlow, an empty one is none */
    return more < 0 ? malformed("") : NULL;
}

void session_config_fini(struct session_config *config) {
    free(config->filters);
    config->filters = NULL;
    config->n_filters = 0;
    free(config->default_task);
    config->default_task = NULL;
    drop_cluster(config);
}

bool session_config_has_task(const struct session_config *config, const char *task) {
    struct device_name name;
    if (!config || config->n_filters == 0)
        return true;
    struct status *st = device_name_parse(span_of(task), &name);
    for (int i = 0; i < config->n_filters && !st; i++) {
        struct device_name filter = config->filters[i];
        filter.type[0] = '\0'; /* a filter that names a device keeps the device's task */
        filter.id = -1;
        if (device_name_matches(&filter, &name))
            return true;
    }
    status_unref(st);
    return false;
}
