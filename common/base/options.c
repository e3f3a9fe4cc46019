/* Reads the options of a program from flags, an INI file (with inih) and the environment, and
 * prints its help. */
#include "common/base/options.h"

#include "common/base/did_you_mean.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <ini.h>

enum {
    FILE_MAX_BYTES = 1 << 20,
    /* inih cuts lines at 200 bytes; a longer value continues in indented lines */
    LINE_MAX_BYTES = 190,
};

static const struct option_row own_rows[] = {
    {.name = "config",
     .value_name = "FILE",
     .help = "an INI file with these settings, by the same names; flags win over it"},
    {.name = "check-config",
     .kind = OPTION_BOOL,
     .help = "print the effective configuration and exit: 0 if it is valid, 78 if not"},
    {.name = "version", .kind = OPTION_BOOL, .help = "print the version and exit"},
    {.name = "help", .kind = OPTION_BOOL, .help = "print this and exit"},
};

void options_init(struct options *options, const struct options_spec *spec, void *values) {
    options->spec = spec;
    options->values = values;
    arena_init(&options->arena);
    options->origins =
        arena_zalloc(&options->arena, (spec->n_rows + 1) * sizeof(*options->origins));
}

void options_fini(struct options *options) { arena_fini(&options->arena); }

/* ---- values ---- */

static bool parse_bool(const char *text, bool *ret) {
    static const char *const words[2][4] = {{"no", "false", "off", "0"},
                                            {"yes", "true", "on", "1"}};
    for (int value = 0; value < 2; value++)
        for (int i = 0; i < 4; i++)
            if (strcmp(text, words[value][i]) == 0) {
                *ret = value;
                return true;
            }
    return false;
}

struct unit {
    const char *suffix;
    int64_t factor;
};
static const struct unit byte_units[] = {{"", 1},          {"K", 1ll << 10}, {"M", 1ll << 20},
                                         {"G", 1ll << 30}, {"T", 1ll << 40}, {NULL, 0}};
static const struct unit time_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {NULL, 0}};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

static bool parse_number(const char *text, const struct unit *units, int64_t *ret) {
    char *end;
    size_t n_digits = strspn(text + (*text == '-'), "0123456789");
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (n_digits == 0 || errno != 0)
        return false;
    if (number == 0 && *end == '\0') {
        *ret = 0;
        return true;
    }
    for (; units->suffix; units++)
        if (strcmp(end, units->suffix) == 0)
            return !mul_overflows_i64(number, units->factor, ret);
    return false;
}

static struct status *set_number(const struct option_row *row, const char *text, int64_t *field) {
    bool is_bytes = row->kind == OPTION_BYTES, is_time = row->kind == OPTION_DURATION;
    int64_t value, max = row->min == 0 && row->max == 0 ? INT64_MAX : row->max;
    if (!parse_number(text, is_bytes ? byte_units : is_time ? time_units : no_units, &value))
        return status_invalid("'%s' is not %s", text,
                              is_bytes  ? "a number of bytes like 4096, 64M or 2G"
                              : is_time ? "a time like 250ms, 10s, 5m or 1h"
                                        : "a number");
    if (value < row->min && max == INT64_MAX)
        return status_invalid("%lld is %s", (long long)value,
                              row->min == 0 ? "negative" : "too small");
    if (value < row->min || value > max)
        return status_invalid("%lld is not between %lld and %lld", (long long)value,
                              (long long)row->min, (long long)max);
    *field = value;
    return NULL;
}

static struct status *set_choice(const struct option_row *row, const char *text, int *field) {
    struct did_you_mean guess = {.typed = span_of(text)};
    struct str all = STR_INIT;
    for (int i = 0; row->choices[i]; i++) {
        if (strcmp(text, row->choices[i]) == 0) {
            str_fini(&all);
            *field = i;
            return NULL;
        }
        did_you_mean_try(&guess, row->choices[i]);
        str_addf(&all, "%s%s", i == 0 ? "" : row->choices[i + 1] ? ", " : " or ", row->choices[i]);
    }
    did_you_mean_add(&guess, "", &all);
    struct status *st = status_invalid("'%s' is not %s", text, str_text(&all));
    str_fini(&all);
    return st;
}

static struct status *set_field(struct options *options, const struct option_row *row,
                                const char *text) {
    void *field = (char *)options->values + row->offset;
    switch (row->kind) {
    case OPTION_STRING:
    case OPTION_LIST:
        *(const char **)field = arena_strdup(&options->arena, text);
        return NULL;
    case OPTION_BOOL:
        return parse_bool(text, field) ? NULL : status_invalid("'%s' is neither yes nor no", text);
    case OPTION_CHOICE:
        return set_choice(row, text, field);
    default:
        return set_number(row, text, field);
    }
}

static const struct option_row *find_row(const struct option_row *rows, size_t n_rows,
                                         struct span name) {
    for (size_t i = 0; i < n_rows; i++)
        if (span_is(name, rows[i].name))
            return &rows[i];
    return NULL;
}

static struct status *unknown_setting(const struct options_spec *spec, const char *name) {
    struct did_you_mean guess = {.typed = span_of(name)};
    struct str near = STR_INIT;
    for (size_t i = 0; i < spec->n_rows; i++)
        did_you_mean_try(&guess, spec->rows[i].name);
    did_you_mean_add(&guess, "", &near);
    struct status *st =
        status_invalid("%s has no such setting: %s%s", spec->program, name, str_text(&near));
    str_fini(&near);
    return st;
}

struct status *options_set(struct options *options, const char *name, const char *text,
                           enum option_source source, const char *where) {
    const struct options_spec *spec = options->spec;
    const struct option_row *row = find_row(spec->rows, spec->n_rows, span_of(name));
    if (!row)
        return unknown_setting(spec, name);
    struct option_origin *origin = &options->origins[row - spec->rows];
    if (origin->source > source)
        return NULL;
    const char *before = row->kind == OPTION_LIST
                             ? *(const char **)(void *)((char *)options->values + row->offset)
                             : NULL;
    if (before && origin->source == source)
        text = arena_printf(&options->arena, "%s:%s", before, text);
    struct status *st = set_field(options, row, text);
    if (st)
        return status_prefix_take(st, "%s: ", name);
    *origin = (struct option_origin){source, where ? arena_strdup(&options->arena, where) : NULL};
    return NULL;
}

static void set_defaults(struct options *options) {
    for (size_t i = 0; i < options->spec->n_rows; i++) {
        const struct option_row *row = &options->spec->rows[i];
        struct status *st = row->default_text ? set_field(options, row, row->default_text) : NULL;
        CHECK(!st);
    }
}

/* ---- the INI file ---- */

struct ini_read {
    struct options *options;
    const char *path;
    struct span rest;
    int line;
    bool is_continuation; /* the line that inih reads continues the value before it */
    int *set_at;          /* for each row its line, 0 before it was read */
    /* the option whose value is being continued, and its value so far */
    const struct option_row *row;
    struct str value;
    int row_line;
    struct status *status;
};

/* Keeps the first error. */
static void ini_fail(struct ini_read *read, int line, struct status *st_take) {
    if (!read->status)
        read->status = status_prefix_take(st_take, "%s:%d: ", read->path, line);
    else
        status_unref(st_take);
}

/* The value of the previous option is complete now. */
static void ini_settle(struct ini_read *read) {
    if (!read->row || read->status)
        return;
    char *where = arena_printf(&read->options->arena, "%s:%d", read->path, read->row_line);
    struct status *st = options_set(read->options, read->row->name, str_text(&read->value),
                                    OPTION_FROM_FILE, where);
    if (st)
        ini_fail(read, read->row_line, st);
    read->row = NULL;
}

/* Works like fgets over the text. Counts lines, and marks those that continue a value. */
static char *ini_next_line(char *out, int size, void *arg) {
    struct ini_read *read = arg;
    if (read->status || read->rest.len == 0 || size < LINE_MAX_BYTES + 2)
        return NULL;
    const char *end = memchr(read->rest.data, '\n', read->rest.len);
    size_t len = end ? (size_t)(end - read->rest.data) : read->rest.len;
    read->line++;
    if (len > LINE_MAX_BYTES) {
        ini_fail(read, read->line,
                 status_invalid("the line is longer than %d bytes; go on in an indented line",
                                LINE_MAX_BYTES));
        return NULL;
    }
    if (memchr(read->rest.data, '\0', len)) {
        ini_fail(read, read->line, status_invalid("a zero byte"));
        return NULL;
    }
    memcpy(out, read->rest.data, len);
    out[len] = '\n';
    out[len + 1] = '\0';
    read->is_continuation = len > 0 && (out[0] == ' ' || out[0] == '\t');
    read->rest.data += len + (end != NULL);
    read->rest.len -= len + (end != NULL);
    return out;
}

static bool is_own_section(const struct options_spec *spec, const char *section) {
    return *section == '\0' || strcmp(section, spec->section) == 0;
}

static bool is_shared_section(const struct options_spec *spec, const char *section) {
    for (const char *const *shared = spec->shared_sections; shared && *shared; shared++)
        if (strcmp(section, *shared) == 0)
            return true;
    return false;
}

static struct status *ini_check(const struct ini_read *read, const char *section, const char *name,
                                const struct option_row *row) {
    const struct options_spec *spec = read->options->spec;
    if (!is_own_section(spec, section))
        return status_invalid(
            "section [%s]: the settings of %s belong in [%s] or before any section", section,
            spec->program, spec->section);
    if (!row)
        return unknown_setting(spec, name);
    if (read->set_at[row - spec->rows])
        return status_invalid("%s is set on line %d already", name, read->set_at[row - spec->rows]);
    return NULL;
}

static int ini_option(void *arg, const char *section, const char *name, const char *value) {
    struct ini_read *read = arg;
    const struct options_spec *spec = read->options->spec;
    if (read->is_continuation && read->row && strcmp(name, read->row->name) == 0) {
        str_add(&read->value, value);
        return 1;
    }
    ini_settle(read);
    if (read->status)
        return 0;
    if (!is_own_section(spec, section) && is_shared_section(spec, section))
        return 1;
    const struct option_row *row = find_row(spec->rows, spec->n_rows, span_of(name));
    struct status *st = ini_check(read, section, name, row);
    if (st) {
        ini_fail(read, read->line, st);
        return 0;
    }
    read->set_at[row - spec->rows] = read->line;
    read->row = row;
    read->row_line = read->line;
    str_clear(&read->value);
    str_add(&read->value, value);
    return 1;
}

struct status *options_read_ini(struct options *options, const char *path, struct span text) {
    struct ini_read read = {.options = options, .path = path, .rest = text};
    read.set_at = xcalloc(options->spec->n_rows + 1, sizeof(int));
    int rc = ini_parse_stream(ini_next_line, &read, ini_option, &read);
    ini_settle(&read);
    struct status *st = read.status;
    if (!st && rc != 0)
        st = status_invalid("%s:%d: not a 'name = value' line", path, rc);
    str_fini(&read.value);
    free(read.set_at);
    return st;
}

static struct status *read_file(struct options *options, const char *path) {
    FILE *file = fopen(path, "re");
    if (!file)
        return status_invalid("cannot read configuration file %s: %s", path, strerror(errno));
    char *text = xmalloc(FILE_MAX_BYTES + 1);
    size_t len = fread(text, 1, FILE_MAX_BYTES + 1, file);
    struct status *st = NULL;
    if (ferror(file))
        st = status_invalid("cannot read configuration file %s: %s", path, strerror(errno));
    else if (len > FILE_MAX_BYTES)
        st = status_invalid("configuration file %s is larger than %d bytes", path, FILE_MAX_BYTES);
    else
        st = options_read_ini(options, path, (struct span){text, len});
    free(text);
    fclose(file);
    return st;
}

/* ---- flags ---- */

struct own_flags {
    bool wants_help, wants_version, wants_check;
    const char *config;
};

static struct status *set_own(struct own_flags *own, const char *name, const char *value) {
    if (strcmp(name, "config") == 0) {
        own->config = value;
        return NULL;
    }
    if (value)
        return status_invalid("--%s takes no value", name);
    own->wants_help |= strcmp(name, "help") == 0;
    own->wants_version |= strcmp(name, "version") == 0;
    own->wants_check |= strcmp(name, "check-config") == 0;
    return NULL;
}

/* Handles "--no-name" of a boolean row. */
static const struct option_row *find_negated(const struct options_spec *spec, struct span name) {
    if (name.len <= 3 || memcmp(name.data, "no-", 3) != 0)
        return NULL;
    const struct option_row *row =
        find_row(spec->rows, spec->n_rows, (struct span){name.data + 3, name.len - 3});
    return row && row->kind == OPTION_BOOL ? row : NULL;
}

struct status *options_unknown(const struct options_spec *spec, struct span name,
                               const struct did_you_mean *others) {
    struct did_you_mean guess = others ? *others : (struct did_you_mean){.typed = name};
    struct str near = STR_INIT;
    for (size_t i = 0; i < spec->n_rows; i++)
        did_you_mean_try(&guess, spec->rows[i].name);
    did_you_mean_add(&guess, "--", &near);
    struct status *st =
        status_invalid("unknown option --%.*s%s", (int)name.len, name.data, str_text(&near));
    str_fini(&near);
    return st;
}

static struct status *unknown_flag(const struct options_spec *spec, struct span name) {
    struct did_you_mean guess = {.typed = name};
    for (size_t i = 0; i < ARRAY_LEN(own_rows); i++)
        did_you_mean_try(&guess, own_rows[i].name);
    return options_unknown(spec, name, &guess);
}

/* Handles argv[*i], and the next argument where that is its value. */
static struct status *read_flag(struct options *options, struct own_flags *own, int argc,
                                char *const *argv, int *i) {
    const struct options_spec *spec = options->spec;
    const char *arg = argv[*i];
    if (strcmp(arg, "-h") == 0)
        return set_own(own, "help", NULL);
    if (strncmp(arg, "--", 2) != 0 || arg[2] == '\0')
        return status_invalid("unexpected argument '%s'", arg);
    const char *name = arg + 2, *equals = strchr(name, '='), *value = equals ? equals + 1 : NULL;
    struct span key = {name, equals ? (size_t)(equals - name) : strlen(name)};
    const struct option_row *own_row = find_row(own_rows, ARRAY_LEN(own_rows), key);
    const struct option_row *row = own_row ? own_row : find_row(spec->rows, spec->n_rows, key);
    if (!row) {
        row = find_negated(spec, key);
        if (!row)
            return unknown_flag(spec, key);
        if (value)
            return status_invalid("--%.*s takes no value", (int)key.len, key.data);
        value = "no";
    } else if (!value && row->kind != OPTION_BOOL) {
        if (*i + 1 >= argc)
            return status_invalid("--%s needs a value: %s", row->name,
                                  row->value_name ? row->value_name : "VALUE");
        value = argv[++*i];
    } else if (!value && !own_row) {
        value = "yes";
    }
    if (own_row)
        return set_own(own, row->name, value);
    return status_prefix_take(options_set(options, row->name, value, OPTION_FROM_FLAG, NULL), "--");
}

static struct status *read_flags(struct options *options, struct own_flags *own, int argc,
                                 char *const *argv) {
    for (int i = 1; i < argc; i++)
        TRY(read_flag(options, own, argc, argv, &i));
    return NULL;
}

/* ---- help ---- */

static void print_row_help(const struct option_row *row, bool is_negatable, struct str *out) {
    size_t begin = out->len;
    str_addf(out, "  --%s%s", is_negatable ? "[no-]" : "", row->name);
    if (row->value_name && row->kind != OPTION_BOOL)
        str_addf(out, " %s", row->value_name);
    for (int i = 0; row->choices && row->choices[i]; i++)
        str_addf(out, "%s%s", i > 0 ? "|" : " ", row->choices[i]);
    do
        str_add_char(out, ' ');
    while (out->len - begin < 28);
    str_add(out, row->help);
    if (row->default_text && *row->default_text && row->kind != OPTION_BOOL)
        str_addf(out, " (default %s)", row->default_text);
    str_add_char(out, '\n');
}

static void print_help(const struct options_spec *spec, struct str *out) {
    str_addf(out, "Usage: %s [OPTION]...\n%s\n\nOptions:\n", spec->program, spec->summary);
    for (size_t i = 0; i < spec->n_rows; i++)
        print_row_help(&spec->rows[i], spec->rows[i].kind == OPTION_BOOL, out);
    for (size_t i = 0; i < ARRAY_LEN(own_rows); i++)
        print_row_help(&own_rows[i], false, out);
    str_addf(out, "\nA file holds the same names: name = value, before any section or in [%s].\n",
             spec->section);
    if (spec->epilog)
        str_add(out, spec->epilog);
}

/* ---- all of it ---- */

static enum options_outcome show(struct str *text, FILE *to) {
    fputs(str_text(text), to);
    str_fini(text);
    return OPTIONS_EXIT;
}

static enum options_outcome fail(const struct options *options, struct status *st_take, int code,
                                 FILE *err, int *ret_code) {
    fprintf(err, "%s: %s%s\n", options->spec->program, status_message(st_take),
            code == EXIT_USAGE ? " (see --help)" : "");
    status_unref(st_take);
    *ret_code = code;
    return OPTIONS_EXIT;
}

enum options_outcome options_load(struct options *options, int argc, char *const *argv, FILE *out,
                                  FILE *err, int *ret_code) {
    const struct options_spec *spec = options->spec;
    struct own_flags own = {0};
    struct str text = STR_INIT;
    set_defaults(options);
    *ret_code = EXIT_OK;
    struct status *st = read_flags(options, &own, argc, argv);
    if (st)
        return fail(options, st, EXIT_USAGE, err, ret_code);
    if (own.wants_help) {
        print_help(spec, &text);
        return show(&text, out);
    }
    if (own.wants_version) {
        str_addf(&text, "%s %s\n", spec->program, MILLRACE_VERSION);
        return show(&text, out);
    }
    if (own.config)
        st = read_file(options, own.config);
    if (!st && spec->read_environment)
        st = spec->read_environment(options);
    if (!st && spec->check)
        st = spec->check(options->values);
    if (st)
        return fail(options, st, EXIT_CONFIG, err, ret_code);
    if (!own.wants_check)
        return OPTIONS_GO_ON;
    options_print(options, &text);
    return show(&text, out);
}

/* ---- printing ---- */

void options_value(const struct options *options, const struct option_row *row, struct str *out) {
    const void *field = (const char *)options->values + row->offset;
    switch (row->kind) {
    case OPTION_STRING:
    case OPTION_LIST:
        str_add(out, *(const char *const *)field ? *(const char *const *)field : "");
        break;
    case OPTION_BOOL:
        str_add(out, *(const bool *)field ? "yes" : "no");
        break;
    case OPTION_CHOICE:
        str_add(out, row->choices[*(const int *)field]);
        break;
    case OPTION_DURATION:
        str_addf(out, "%lldms", (long long)*(const int64_t *)field);
        break;
    default:
        str_addf(out, "%lld", (long long)*(const int64_t *)field);
    }
}

const char *options_origin(const struct options *options, const struct option_row *row) {
    static const char *const sources[] = {"default", "environment", "file", "flag"};
    const struct option_origin *origin = &options->origins[row - options->spec->rows];
    return origin->where ? origin->where : sources[origin->source];
}

void options_print(const struct options *options, struct str *out) {
    const struct options_spec *spec = options->spec;
    for (size_t i = 0; i < spec->n_rows; i++) {
        size_t begin = out->len;
        str_addf(out, "%s = ", spec->rows[i].name);
        options_value(options, &spec->rows[i], out);
        do
            str_add_char(out, ' ');
        while (out->len - begin < 40);
        str_addf(out, "# %s\n", options_origin(options, &spec->rows[i]));
    }
}
