/* Writes settings as JSON. */
#include "rpc/daemon/flag_page.h"

#include "rpc/daemon/page.h"

static const char hidden[] = "(hidden)";

/* Appends the text with (hidden)@ in place of USER:PASSWORD@ in each of its URLs. */
static void add_without_passwords(struct str *out, const char *text) {
    for (const char *url; (url = strstr(text, "://"));) {
        const char *authority = url + 3;
        size_t len = strcspn(authority, "/,; ");
        const char *at = memrchr(authority, '@', len);
        str_add_bytes(out, text, (size_t)(authority - text));
        if (at)
            str_add(out, hidden);
        text = at ? at : authority;
    }
    str_add(out, text);
}

static void add_value(const struct options *options, const struct option_row *row,
                      struct str *out) {
    struct str value = STR_INIT, shown = STR_INIT;
    options_value(options, row, &value);
    if (row->is_secret && value.len > 0)
        str_add(&shown, hidden);
    else
        add_without_passwords(&shown, str_text(&value));
    page_text(out, "value", str_text(&shown));
    str_fini(&value);
    str_fini(&shown);
}

static void add_flags(const struct options *options, const char *key, bool is_default,
                      struct str *out) {
    page_open(out, key, '[');
    for (size_t i = 0; i < options->spec->n_rows; i++) {
        const struct option_row *row = &options->spec->rows[i];
        if ((options->origins[i].source == OPTION_FROM_DEFAULT) != is_default)
            continue;
        page_open(out, NULL, '{');
        page_text(out, "flag", row->name);
        add_value(options, row, out);
        page_text(out, "origin", options_origin(options, row));
        page_text(out, "about", row->help);
        page_close(out, '}');
    }
    page_close(out, ']');
}

void flag_page_write(const struct options *options, struct str *out) {
    page_open(out, NULL, '{');
    add_flags(options, "set", false, out);
    add_flags(options, "defaults", true, out);
    page_close(out, '}');
    str_add_char(out, '\n');
}
