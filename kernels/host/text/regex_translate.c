/* Translates RE2's syntax to PCRE2's, by recursive descent. Each part is written with its meaning
 * in PCRE2's syntax:
 *
 *   ^ $ \A \z      ^ and $, in (?m: ) where lines are meant; PCRE2 can be told that a text's
 *                  end is none (see regex.c)
 *   . \d \w [[:x:]]  classes by their ranges
 *   x              itself, as \x{…} unless it is a letter or digit
 *   (?i)           written where it changes; (?s) (?m) (?U) are part of what they change
 *   (?P<n>x)       a group like any other, because nobody uses its name */
#include <stdlib.h>

#include "kernels/host/text/regex.h"
#include "kernels/host/text/regex_class.h"
#include "kernels/host/text/string_internal.h"
#include "kernels/host/text/utf8.h"

enum { MAX_CHAR = 0x10ffff, MAX_REPEAT = 1000, MAX_DEPTH = 500 };

struct flags {
    bool ignores_case, dot_takes_newline, by_lines, is_lazy;
};

struct translator {
    struct span whole, rest;
    struct flags flags;
    bool ignores_case_now; /* whether PCRE2 ignores case at this point of the output */
    int depth;
    struct span *names;
    size_t n_names;
    struct str *out;
};

struct status *regex_invalid(struct span pattern, const char *what, struct span where) {
    return status_invalid("Invalid pattern: %.*s, error: %s%s%.*s", (int)pattern.len, pattern.data,
                          what, where.data ? ": " : "", (int)where.len,
                          where.data ? where.data : "");
}

static COLD struct status *wrong_at(const struct translator *t, const char *what,
                                    const char *begin) {
    return regex_invalid(t->whole, what, (struct span){begin, (size_t)(t->rest.data - begin)});
}
static COLD struct status *wrong_rest(const struct translator *t, const char *what,
                                      const char *begin) {
    return regex_invalid(t->whole, what,
                         (struct span){begin, (size_t)(t->whole.data + t->whole.len - begin)});
}

/* ---- reading ---- */

static char peek(const struct translator *t) { return t->rest.len > 0 ? t->rest.data[0] : '\0'; }
static bool is_next(const struct translator *t, char c) {
    return t->rest.len > 0 && t->rest.data[0] == c;
}

static void skip(struct translator *t, size_t n) {
    t->rest.data += n;
    t->rest.len -= n;
}

static bool take(struct translator *t, const char *text) {
    size_t n = strlen(text);
    if (t->rest.len < n || memcmp(t->rest.data, text, n) != 0)
        return false;
    skip(t, n);
    return true;
}

/* The pattern as a whole is well-formed, which regex_translate has checked. */
static uint32_t take_char(struct translator *t) {
    size_t len;
    uint32_t c = utf8_decode(t->rest, &len);
    skip(t, len);
    return c;
}

static int digit_of(char c, int base) {
    int d = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : 99;
    return d < base ? d : -1;
}

/* Reads digits of a number, which stays at `limit` once it is above that. Returns how many digits
 * there were. */
static int take_number(struct translator *t, int base, int max_digits, int64_t limit,
                       int64_t *ret) {
    int n = 0;
    for (*ret = 0; n < max_digits && t->rest.len > 0 && digit_of(peek(t), base) >= 0; n++) {
        *ret = MIN(*ret * base + digit_of(peek(t), base), limit);
        skip(t, 1);
    }
    return n;
}

/* ---- writing ---- */

static void write_case(struct translator *t) {
    if (t->ignores_case_now != t->flags.ignores_case)
        str_add(t->out, t->flags.ignores_case ? "(?i)" : "(?-i)");
    t->ignores_case_now = t->flags.ignores_case;
}

static void write_char(struct translator *t, uint32_t c) {
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_letter || c > 0x7f)
        write_case(t);
    if (is_letter || (c >= '0' && c <= '9'))
        str_add_char(t->out, (char)c);
    else
        str_addf(t->out, "\\x{%x}", c);
}

/* ---- escapes ---- */

static struct status *take_hex(struct translator *t, const char *begin, uint32_t *ret) {
    bool is_braced = take(t, "{");
    int64_t value;
    int n = take_number(t, 16, is_braced ? INT32_MAX : 2, MAX_CHAR + 1, &value);
    if (n == 0 || value > MAX_CHAR || (!is_braced && n != 2) || (is_braced && !take(t, "}")))
        return wrong_at(t, "invalid escape sequence", begin);
    *ret = (uint32_t)value;
    return NULL;
}

/* Reads an escape that stands for one character. */
static struct status *take_escaped(struct translator *t, uint32_t *ret) {
    static const char from[] = "ntrfva", to[] = "\n\t\r\f\v\a";
    const char *begin = t->rest.data;
    int64_t value;
    skip(t, 1);
    if (t->rest.len == 0)
        return regex_invalid(t->whole, "trailing \\", (struct span){NULL, 0});
    char c = peek(t);
    if (c == 'x') {
        skip(t, 1);
        return take_hex(t, begin, ret);
    }
    if (c == '0' ||
        (c >= '1' && c <= '7' && t->rest.len > 1 && digit_of(t->rest.data[1], 8) >= 0)) {
        take_number(t, 8, 3, MAX_CHAR, &value);
        *ret = (uint32_t)value;
        return NULL;
    }
    const char *known = memchr(from, c, sizeof(from) - 1);
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     (unsigned char)c >= 0x80;
    *ret = take_char(t);
    if (known)
        *ret = (uint32_t)to[known - from];
    return !known && is_letter ? wrong_at(t, "invalid escape sequence", begin) : NULL;
}

/* Reads \pN and \p{Name}, where ^ negates as well. */
static struct status *take_unicode_class(struct translator *t, struct str *out, bool is_in_class) {
    const char *begin = t->rest.data;
    bool is_negated = begin[1] == 'P';
    struct span name;
    skip(t, 2);
    if (t->rest.len == 0)
        return wrong_at(t, "invalid character class range", begin);
    if (take(t, "{")) {
        const char *end = memchr(t->rest.data, '}', t->rest.len);
        if (!end)
            return wrong_rest(t, "invalid character class range", begin);
        is_negated ^= take(t, "^");
        name = (struct span){t->rest.data, (size_t)(end - t->rest.data)};
        skip(t, name.len + 1);
    } else {
        name.data = t->rest.data;
        take_char(t);
        name.len = (size_t)(t->rest.data - name.data);
    }
    if (!is_in_class) {
        write_case(t);
        str_add(out, is_negated ? "[^" : "[");
    }
    int done = unicode_class_add(name, is_negated && is_in_class, t->flags.ignores_case, out);
    if (done < 0)
        return status_unimplemented(
            "A negated \\pC between brackets in regular expressions: pattern %.*s",
            (int)t->whole.len, t->whole.data);
    if (!is_in_class)
        str_add_char(out, ']');
    return done ? NULL : wrong_at(t, "invalid character class range", begin);
}

/* ---- classes ---- */

/* Reads [:alpha:] and similar names. *ret_done is false where the text is something else. */
static struct status *take_named_class(struct translator *t, bool *ret_done) {
    *ret_done = false;
    if (t->rest.len < 2 || memcmp(t->rest.data, "[:", 2) != 0)
        return NULL;
    const char *end = memmem(t->rest.data + 2, t->rest.len - 2, ":]", 2), *begin = t->rest.data;
    if (!end)
        return NULL;
    bool is_negated = begin[2] == '^' && end > begin + 2;
    struct span name = {begin + 2 + is_negated, (size_t)(end - begin - 2 - is_negated)};
    const struct ascii_class *class = ascii_class_find(name);
    skip(t, (size_t)(end + 2 - begin));
    if (!class)
        return wrong_at(t, "invalid character class range", begin);
    ascii_class_add(class, is_negated, t->flags.ignores_case, t->out);
    *ret_done = true;
    return NULL;
}

static struct status *take_class_char(struct translator *t, uint32_t *ret) {
    if (is_next(t, '\\'))
        return take_escaped(t, ret);
    *ret = take_char(t);
    return NULL;
}

/* Translates one member of a class: a character, a range, or a class. */
static struct status *translate_member(struct translator *t) {
    bool is_done;
    TRY(take_named_class(t, &is_done));
    if (is_done)
        return NULL;
    const char *begin = t->rest.data;
    if (t->rest.len > 1 && begin[0] == '\\') {
        const struct ascii_class *class = ascii_class_of_escape(begin[1]);
        if (class) {
            skip(t, 2);
            ascii_class_add(class, !(begin[1] & 0x20), t->flags.ignores_case, t->out);
            return NULL;
        }
        if (begin[1] == 'p' || begin[1] == 'P')
            return take_unicode_class(t, t->out, true);
    }
    uint32_t low, high;
    TRY(take_class_char(t, &low));
    high = low;
    if (t->rest.len > 1 && peek(t) == '-' && t->rest.data[1] != ']') {
        skip(t, 1);
        TRY(take_class_char(t, &high));
    }
    if (high < low)
        return wrong_at(t, "invalid character class range", begin);
    regex_add_range(t->out, low, high);
    return NULL;
}

static struct status *translate_class(struct translator *t) {
    const char *begin = t->rest.data;
    skip(t, 1);
    write_case(t);
    str_add(t->out, take(t, "^") ? "[^" : "[");
    do {
        if (t->rest.len == 0)
            return wrong_rest(t, "missing ]", begin);
        TRY(translate_member(t));
    } while (!take(t, "]"));
    str_add_char(t->out, ']');
    return NULL;
}

/* ---- groups ---- */

/* Each function below returns how often its most repeated part is repeated: the product of all
 * counted repetitions around that part. */
static struct status *translate_alternatives(struct translator *t, int64_t *ret_repeats);

/* Reads what follows "(?": flags such as "ims-U" and ")" or ":". *ret_opens is true after ":". */
static struct status *take_flags(struct translator *t, const char *begin, bool *ret_opens) {
    bool value = true, is_flag_missing = false;
    while (t->rest.len > 0) {
        char c = (char)(peek(t) & 0x7f);
        bool is_ascii = c == peek(t);
        take_char(t);
        switch (is_ascii ? c : '\0') {
        case 'i':
            t->flags.ignores_case = value;
            break;
        case 's':
            t->flags.dot_takes_newline = value;
            break;
        case 'm':
            t->flags.by_lines = value;
            break;
        case 'U':
            t->flags.is_lazy = value;
            break;
        case '-':
            if (!value)
                return wrong_at(t, "invalid perl operator", begin);
            value = false;
            is_flag_missing = true;
            continue;
        case ':':
        case ')':
            if (is_flag_missing)
                return wrong_at(t, "invalid perl operator", begin);
            *ret_opens = c == ':';
            return NULL;
        default:
            return wrong_at(t, "invalid perl operator", begin);
        }
        is_flag_missing = false;
    }
    return wrong_rest(t, "missing argument to flags", begin);
}

static struct status *take_group_name(struct translator *t, const char *begin) {
    const char *end = memchr(t->rest.data, '>', t->rest.len);
    if (!end)
        return wrong_rest(t, "invalid named capture group", begin);
    struct span name = {t->rest.data, (size_t)(end - t->rest.data)};
    skip(t, name.len + 1);
    bool is_good = name.len > 0;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        is_good &= (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                   c == '_' || (unsigned char)c >= 0x80;
    }
    if (!is_good)
        return wrong_at(t, "invalid named capture group", begin);
    for (size_t i = 0; i < t->n_names; i++)
        if (t->names[i].len == name.len && memcmp(t->names[i].data, name.data, name.len) == 0)
            return regex_invalid(t->whole, "duplicate capture group name", name);
    t->names = xreallocarray(t->names, t->n_names + 1, sizeof(*t->names));
    t->names[t->n_names++] = name;
    return NULL;
}

/* Translates a group, from "(" on. Flags that are set inside hold until the group's end. "(?i)"
 * holds until the end of the group around it and is no part, so *ret_is_part is false. */
static struct status *translate_group(struct translator *t, bool *ret_is_part,
                                      int64_t *ret_repeats) {
    struct flags before = t->flags;
    bool case_before = t->ignores_case_now, captures = true;
    const char *begin = t->rest.data;
    skip(t, 1);
    if (take(t, "?P<")) {
        TRY(take_group_name(t, begin));
    } else if (take(t, "?P")) {
        return wrong_rest(t, "invalid named capture group", begin);
    } else if (take(t, "?")) {
        TRY(take_flags(t, begin, ret_is_part));
        if (!*ret_is_part)
            return NULL;
        captures = false;
    }
    *ret_is_part = true;
    if (++t->depth > MAX_DEPTH)
        return regex_invalid(t->whole, "expression nests too deeply", (struct span){NULL, 0});
    str_add(t->out, captures ? "(" : "(?:");
    TRY(translate_alternatives(t, ret_repeats));
    t->depth--;
    if (!take(t, ")"))
        return regex_invalid(t->whole, "missing )", t->whole);
    str_add_char(t->out, ')');
    t->flags = before;
    t->ignores_case_now = case_before;
    return NULL;
}

/* ---- parts ---- */

static struct status *translate_escape(struct translator *t) {
    static const char places[] = "AzbB";
    static const char *const words[] = {"(?:^)", "(?:$)", "(?:\\b)", "(?:\\B)"};
    char c = t->rest.len > 1 ? t->rest.data[1] : '\0';
    const char *place = c ? strchr(places, c) : NULL;
    if (place) {
        str_add(t->out, words[place - places]);
        skip(t, 2);
        return NULL;
    }
    if (c == 'C')
        return status_unimplemented("Single bytes (\\C) in regular expressions: pattern %.*s",
                                    (int)t->whole.len, t->whole.data);
    if (c == 'p' || c == 'P')
        return take_unicode_class(t, t->out, false);
    const struct ascii_class *class = ascii_class_of_escape(c);
    if (class) {
        write_case(t);
        str_add(t->out, c & 0x20 ? "[" : "[^");
        ascii_class_add(class, false, t->flags.ignores_case, t->out);
        str_add_char(t->out, ']');
        skip(t, 2);
        return NULL;
    }
    uint32_t code;
    TRY(take_escaped(t, &code));
    write_char(t, code);
    return NULL;
}

/* Translates what follows \Q. A repetition after it repeats only its last character. */
static void translate_quoted(struct translator *t, bool *ret_is_part) {
    while (t->rest.len > 0 && !take(t, "\\E")) {
        write_char(t, take_char(t));
        *ret_is_part = true;
    }
}

/* Reads "{n}", "{n,}" or "{n,m}". Anything else is plain text. max -1: no limit. */
static bool take_counts(struct translator *t, int64_t *ret_min, int64_t *ret_max) {
    struct span before = t->rest;
    bool is_good = take(t, "{");
    for (int i = 0; is_good && i < 2; i++) {
        int64_t *to = i ? ret_max : ret_min;
        bool is_zero_first = is_next(t, '0');
        int n = take_number(t, 10, INT32_MAX, MAX_REPEAT + 1, to);
        is_good = n == 1 || (n > 1 && !is_zero_first) || (i == 1 && n == 0);
        if (i == 1 && n == 0)
            *to = -1;
        if (i == 0 && is_good && !take(t, ",")) {
            *ret_max = *ret_min;
            break;
        }
    }
    if (is_good && take(t, "}"))
        return true;
    t->rest = before;
    return false;
}

static bool takes_repetition(struct translator *t, int64_t *ret_min, int64_t *ret_max) {
    *ret_min = is_next(t, '+');
    *ret_max = is_next(t, '?') ? 1 : -1;
    return take(t, "*") || take(t, "+") || take(t, "?") || take_counts(t, ret_min, ret_max);
}

/* Reads the repetition after a part whose inside is repeated *repeats times. */
static struct status *translate_repetition(struct translator *t, int64_t *repeats) {
    int64_t min, max;
    const char *begin = t->rest.data;
    if (!takes_repetition(t, &min, &max))
        return NULL;
    bool is_counted = begin[0] == '{', is_lazy = t->flags.is_lazy ^ take(t, "?");
    if (is_counted && (min > MAX_REPEAT || max > MAX_REPEAT || (max >= 0 && max < min)))
        return wrong_at(t, "invalid repetition size", begin);
    int64_t times = is_counted ? (max >= 0 ? max : min) : 1;
    *repeats *= MAX(times, 1);
    if (*repeats > MAX_REPEAT)
        return wrong_at(t, "invalid repetition size", begin);
    if (!is_counted)
        str_add_char(t->out, begin[0]);
    else if (max == min)
        str_addf(t->out, "{%d}", (int)min);
    else if (max < 0)
        str_addf(t->out, "{%d,}", (int)min);
    else
        str_addf(t->out, "{%d,%d}", (int)min, (int)max);
    if (is_lazy)
        str_add_char(t->out, '?');
    if (takes_repetition(t, &min, &max))
        return wrong_at(t, "bad repetition operator", begin);
    return NULL;
}

static struct status *translate_part(struct translator *t, bool *ret_is_part,
                                     int64_t *ret_repeats) {
    int64_t unused;
    const char *begin = t->rest.data;
    *ret_is_part = true;
    switch (peek(t)) {
    case '(':
        return translate_group(t, ret_is_part, ret_repeats);
    case '[':
        return translate_class(t);
    case '.':
        str_add(t->out, t->flags.dot_takes_newline ? "(?s:.)" : "[^\\n]");
        break;
    case '^':
        str_add(t->out, t->flags.by_lines ? "(?m:^)" : "(?:^)");
        break;
    case '$':
        str_add(t->out, t->flags.by_lines ? "(?m:$)" : "(?:$)");
        break;
    case '\\':
        *ret_is_part = false;
        if (take(t, "\\Q")) {
            translate_quoted(t, ret_is_part);
            return NULL;
        }
        *ret_is_part = true;
        return translate_escape(t);
    default:
        if (takes_repetition(t, &unused, &unused))
            return wrong_at(t, "no argument for repetition operator", begin);
        write_char(t, take_char(t));
        return NULL;
    }
    skip(t, 1);
    return NULL;
}

/* In "a(?i)*" the flags are no part, so the part before them is repeated. That part may be repeated
 * already, so it becomes a group. */
static struct status *repeat_earlier(struct translator *t, size_t begin, bool case_then,
                                     int64_t *repeats) {
    int64_t min, max;
    struct span before = t->rest;
    if (!takes_repetition(t, &min, &max))
        return NULL;
    t->rest = before;
    static const char open[] = "(?:";
    str_add(t->out, open);
    memmove(t->out->data + begin + 3, t->out->data + begin, t->out->len - 3 - begin);
    memcpy(t->out->data + begin, open, 3);
    str_add_char(t->out, ')');
    t->ignores_case_now = case_then;
    return translate_repetition(t, repeats);
}

static struct status *translate_alternatives(struct translator *t, int64_t *ret_repeats) {
    size_t last_begin = 0;
    int64_t repeats = 1;
    bool has_last = false, last_case = false;
    *ret_repeats = 1;
    while (t->rest.len > 0 && !is_next(t, ')')) {
        size_t begin = t->out->len;
        bool is_part, case_then = t->ignores_case_now;
        int64_t own_repeats = 1;
        if (take(t, "|")) {
            str_add_char(t->out, '|');
            has_last = false;
            continue;
        }
        TRY(translate_part(t, &is_part, &own_repeats));
        if (is_part) {
            has_last = true;
            repeats = own_repeats;
            last_begin = begin;
            last_case = case_then;
            TRY(translate_repetition(t, &repeats));
        } else if (has_last) {
            TRY(repeat_earlier(t, last_begin, last_case, &repeats));
        }
        *ret_repeats = MAX(*ret_repeats, repeats);
    }
    return NULL;
}

struct status *regex_translate(struct span pattern, struct str *out) {
    struct translator t = {.whole = pattern, .rest = pattern, .out = out};
    int64_t repeats;
    for (size_t at = 0, len; at < pattern.len; at += len) {
        struct span here = {pattern.data + at, pattern.len - at};
        if (utf8_decode(here, &len) == 0xfffd &&
            !(len == 3 && memcmp(here.data, "\xef\xbf\xbd", 3) == 0))
            return regex_invalid(pattern, "invalid UTF-8", (struct span){NULL, 0});
    }
    struct status *st = translate_alternatives(&t, &repeats);
    if (!st && t.rest.len > 0)
        st = regex_invalid(pattern, "unexpected )", pattern);
    free(t.names);
    return st;
}
