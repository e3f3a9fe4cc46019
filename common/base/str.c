/* Implements a growing byte string. Its capacity doubles, so that appending n bytes one by one
 * costs O(n). */
#include "common/base/str.h"

#include <stdio.h>
#include <stdlib.h>

enum { STR_FIRST_CAPACITY = 32 };

void str_fini(struct str *s) {
    if (!s)
        return;
    free(s->data);
    *s = STR_INIT;
}

void str_clear(struct str *s) {
    s->len = 0;
    if (s->data)
        s->data[0] = '\0';
}

void str_reserve(struct str *s, size_t extra) {
    size_t need; /* with the NUL */
    if (__builtin_add_overflow(s->len + 1, extra, &need))
        out_of_memory(extra);
    if (need <= s->capacity)
        return;
    size_t doubled = s->capacity > SIZE_MAX / 2 ? SIZE_MAX : s->capacity * 2;
    s->capacity = MAX(MAX(need, doubled), (size_t)STR_FIRST_CAPACITY);
    s->data = xrealloc(s->data, s->capacity);
    s->data[s->len] = '\0';
}

void str_add(struct str *s, const char *text) { str_add_bytes(s, text, strlen(text)); }

void str_add_bytes(struct str *s, const void *data, size_t len) {
    str_reserve(s, len);
    if (len > 0)
        memcpy(s->data + s->len, data, len);
    s->len += len;
    s->data[s->len] = '\0';
}

void str_add_char(struct str *s, char c) {
    str_reserve(s, 1);
    s->data[s->len++] = c;
    s->data[s->len] = '\0';
}

void str_add_little_endian(struct str *s, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++)
        str_add_char(s, (char)(value >> (8 * i) & 0xff));
}

void str_addf(struct str *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    str_addv(s, format, args);
    va_end(args);
}

void str_addv(struct str *s, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    str_reserve(s, 0);
    size_t room = s->capacity - s->len;
    int formatted = vsnprintf(s->data + s->len, room, format, args);
    size_t len = formatted < 0 ? 0 : (size_t)formatted;
    if (len >= room) {
        str_reserve(s, len);
        (void)vsnprintf(s->data + s->len, len + 1, format, again);
    }
    va_end(again);
    s->len += len;
    s->data[s->len] = '\0';
}

size_t utf8_well_formed_len(const char *bytes, size_t len) {
    const unsigned char *text = (const unsigned char *)bytes;
    unsigned char lead = text[0];
    if (lead < 0x80)
        return 1;
    size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || len < need)
        return 0;
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    }
    return need;
}

static void add_json_control(struct str *s, unsigned char c) {
    static const char short_escapes[0x20] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    if (short_escapes[c])
        str_add_bytes(s, (char[]){'\\', short_escapes[c]}, 2);
    else
        str_addf(s, "\\u%04x", c);
}

/* Clients choose names: a byte that is not UTF-8 becomes U+FFFD, since one such byte would make a
 * whole page invalid. */
void str_add_utf8(struct str *s, uint32_t code) {
    char bytes[4];
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(n == 1 ? code : (0xf00u >> n & 0xff) | code);
    str_add_bytes(s, bytes, n);
}

int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

void str_add_json_escaped(struct str *s, const char *text, size_t len) {
    const unsigned char *bytes = (const unsigned char *)text;
    str_reserve(s, len);
    for (size_t i = 0; i < len;) {
        size_t n = utf8_well_formed_len(text + i, len - i);
        if (n == 0)
            str_add(s, "\\ufffd");
        else if (bytes[i] < 0x20)
            add_json_control(s, bytes[i]);
        else if (bytes[i] == '"' || bytes[i] == '\\')
            str_add_bytes(s, (char[]){'\\', text[i]}, 2);
        else
            str_add_bytes(s, text + i, n);
        i += MAX(n, (size_t)1);
    }
}

const char *str_text(const struct str *s) { return s->data ? s->data : ""; }

char *str_detach(struct str *s) {
    str_reserve(s, 0); /* an empty string gives an allocated "", never NULL */
    char *text = s->data;
    *s = STR_INIT;
    return text;
}
