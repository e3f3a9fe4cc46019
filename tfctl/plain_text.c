/* Takes control characters out of text. */
#include "tfctl/plain_text.h"

/* C0, DEL, and C1 in UTF-8. */
static bool is_control(const char *text, size_t n) {
    const unsigned char *bytes = (const unsigned char *)text;
    return (n == 1 && (bytes[0] < 0x20 || bytes[0] == 0x7f)) ||
           (n == 2 && bytes[0] == 0xc2 && bytes[1] < 0xa0);
}

static void add_line(struct str *out, const char *text, size_t len, size_t max_bytes) {
    size_t i = 0;
    while (i < len) {
        size_t n = utf8_well_formed_len(text + i, len - i);
        if (i + MAX(n, (size_t)1) > max_bytes)
            break;
        if (n == 0 || is_control(text + i, n))
            str_add_char(out, '?');
        else
            str_add_bytes(out, text + i, n);
        i += MAX(n, (size_t)1);
    }
    if (i < len)
        str_add(out, "…");
}

void plain_text_add(struct str *out, const char *text, size_t max_bytes) {
    add_line(out, text, strcspn(text, "\n"), max_bytes);
}

void plain_text_add_lines(struct str *out, const char *text, int indent, size_t max_line_bytes,
                          int max_lines) {
    for (int i = 0; *text; i++) {
        size_t len = strcspn(text, "\n");
        if (i > 0)
            str_addf(out, "\n%*s", indent, "");
        if (i == max_lines) {
            str_add(out, "…");
            return;
        }
        add_line(out, text + strspn(text, "\t"), len - MIN(len, strspn(text, "\t")),
                 max_line_bytes);
        text += len + (text[len] == '\n');
    }
}
