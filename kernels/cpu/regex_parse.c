/* From a pattern to its program: recursive descent, each part of the pattern emitting its steps one after the other.
 *
 *   x|y   split A, B; A: x; jump E; B: y; E:
 *   x*    A: split B, E; B: x; jump A; E:
 *   x+    A: x; split A, E; E:
 *   x?    split A, E; A: x; E: */
#include <stdlib.h>

#include "kernels/cpu/regex_internal.h"
#include "kernels/cpu/string_internal.h"

struct flags {
    bool ignores_case, dot_takes_newline, by_lines;
};

struct parser {
    struct regex *regex;
    struct span whole, rest;
    struct flags flags;
    int depth;
};

static COLD struct status *wrong(const struct parser *parser, const char *what) {
    return status_invalid("Invalid pattern: %.*s, error: %s", (int)parser->whole.len, parser->whole.data, what);
}

/* ---- steps ---- */

static struct status *emit(struct parser *parser, enum regex_step_kind kind, int x, int y) {
    struct regex *regex = parser->regex;
    if (regex->n_steps >= REGEX_MAX_STEPS)
        return wrong(parser, "pattern too large - compile failed");
    if (regex->n_steps == regex->steps_capacity) {
        regex->steps_capacity = regex->steps_capacity ? 2 * regex->steps_capacity : 32;
        regex->steps = xreallocarray(regex->steps, (size_t)regex->steps_capacity, sizeof(*regex->steps));
    }
    regex->steps[regex->n_steps++] = (struct regex_step){kind, x, y};
    return NULL;
}

static void add_range(struct regex *regex, uint32_t low, uint32_t high) {
    if (low > high)
        return;
    if (regex->n_ranges == regex->ranges_capacity) {
        regex->ranges_capacity = regex->ranges_capacity ? 2 * regex->ranges_capacity : 32;
        regex->ranges = xreallocarray(regex->ranges, (size_t)regex->ranges_capacity, sizeof(*regex->ranges));
    }
    regex->ranges[regex->n_ranges++] = (struct regex_range){low, high};
}

static int by_low(const void *a, const void *b) {
    const struct regex_range *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

/* The characters that the ranges from `first` on do not hold take their place. */
static void negate_ranges(struct regex *regex, int first) {
    int n = regex->n_ranges - first;
    struct regex_range *copy = xmalloc(((size_t)n + 1) * sizeof(*copy));
    if (n > 0)
        memcpy(copy, regex->ranges + first, (size_t)n * sizeof(*copy));
    qsort(copy, (size_t)n, sizeof(*copy), by_low);
    regex->n_ranges = first;
    uint32_t next = 0;
    for (int i = 0; i < n; i++) {
        if (copy[i].low > next)
            add_range(regex, next, copy[i].low - 1);
        next = MAX(next, copy[i].high + 1);
    }
    add_range(regex, next, REGEX_MAX_CHAR);
    free(copy);
}

/* ASCII letters in both cases. */
static struct status *fold_ranges(struct parser *parser, int first) {
    struct regex *regex = parser->regex;
    int end = regex->n_ranges;
    for (int i = first; i < end; i++) {
        struct regex_range range = regex->ranges[i];
        uint32_t low = MAX(range.low, 'a'), high = MIN(range.high, 'z');
        add_range(regex, low - 32, high < low ? 0 : high - 32);
        low = MAX(range.low, 'A'), high = MIN(range.high, 'Z');
        add_range(regex, low + 32, high < low ? 0 : high + 32);
        if (range.high > 0x7f && range.high != REGEX_MAX_CHAR)
            return status_unimplemented("Ignoring the case of characters beyond ASCII: pattern %.*s", (int)parser->whole.len,
                                        parser->whole.data);
    }
    return NULL;
}

static struct status *emit_ranges(struct parser *parser, int first) {
    return emit(parser, STEP_CHAR, first, parser->regex->n_ranges - first);
}

static struct status *emit_char(struct parser *parser, uint32_t c) {
    int first = parser->regex->n_ranges;
    add_range(parser->regex, c, c);
    if (parser->flags.ignores_case)
        TRY(fold_ranges(parser, first));
    return emit_ranges(parser, first);
}

/* ---- characters ---- */

static bool take(struct parser *parser, const char *text) {
    size_t n = strlen(text);
    if (parser->rest.len < n || memcmp(parser->rest.data, text, n) != 0)
        return false;
    parser->rest.data += n;
    parser->rest.len -= n;
    return true;
}

static char peek(const struct parser *parser) { return parser->rest.len > 0 ? parser->rest.data[0] : '\0'; }

static struct status *take_char(struct parser *parser, uint32_t *ret) {
    size_t len;
    *ret = utf8_decode(parser->rest, &len);
    if (*ret == 0xfffd && !(len == 3 && memcmp(parser->rest.data, "\xef\xbf\xbd", 3) == 0))
        return wrong(parser, "invalid UTF-8");
    parser->rest.data += len;
    parser->rest.len -= len;
    return NULL;
}

static int digit_of(char c, int base) {
    int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
    return d < base ? d : -1;
}

/* Up to max_digits of them; -1 when there are none. */
static int64_t take_number(struct parser *parser, int base, int max_digits) {
    int64_t value = -1;
    for (int i = 0; i < max_digits && parser->rest.len > 0 && digit_of(peek(parser), base) >= 0; i++) {
        value = MAX(value, 0) * base + digit_of(peek(parser), base);
        parser->rest.data++;
        parser->rest.len--;
    }
    return value;
}

/* \d and its kin. */
static bool add_escape_class(struct parser *parser, char c) {
    struct regex *regex = parser->regex;
    int first = regex->n_ranges;
    switch (c | 0x20) {
    case 'd':
        add_range(regex, '0', '9');
        break;
    case 'w':
        add_range(regex, '0', '9');
        add_range(regex, 'A', 'Z');
        add_range(regex, '_', '_');
        add_range(regex, 'a', 'z');
        break;
    case 's':
        add_range(regex, '\t', '\n');
        add_range(regex, '\f', '\r');
        add_range(regex, ' ', ' ');
        break;
    default:
        return false;
    }
    if (!(c & 0x20))
        negate_ranges(regex, first);
    return true;
}

/* What follows a backslash, as one character. */
static struct status *take_escaped(struct parser *parser, uint32_t *ret) {
    static const char from[] = "ntrfva", to[] = "\n\t\r\f\v\a";
    char c = peek(parser);
    if (parser->rest.len == 0)
        return wrong(parser, "trailing \\");
    if (c == 'x') {
        take(parser, "x");
        bool is_braced = take(parser, "{");
        int64_t value = take_number(parser, 16, is_braced ? 8 : 2);
        if (value < 0 || value > REGEX_MAX_CHAR || (is_braced && !take(parser, "}")))
            return wrong(parser, "invalid escape sequence: \\x");
        *ret = (uint32_t)value;
        return NULL;
    }
    if (c == '0' || (c >= '1' && c <= '7' && parser->rest.len > 1 && digit_of(parser->rest.data[1], 8) >= 0)) {
        *ret = (uint32_t)take_number(parser, 8, 3);
        return NULL;
    }
    if (c == 'p' || c == 'P')
        return status_unimplemented("Unicode classes in regular expressions: pattern %.*s", (int)parser->whole.len, parser->whole.data);
    const char *known = memchr(from, c, sizeof(from) - 1);
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!known && is_letter)
        return wrong(parser, "invalid escape sequence");
    TRY(take_char(parser, ret));
    if (known)
        *ret = (uint32_t)to[known - from];
    return NULL;
}

/* ---- classes ---- */

/* [:alpha:] and its kin, by their ranges as pairs of characters. */
static bool add_named_class(struct parser *parser) {
    static const struct {
        const char *name, *ranges;
    } classes[] = {
        {"alnum", "09AZaz"}, {"alpha", "AZaz"}, {"ascii", NULL},      {"blank", "\t\t  "},  {"cntrl", NULL},
        {"digit", "09"},     {"graph", "!~"},   {"lower", "az"},      {"print", " ~"},      {"punct", "!/:@[`{~"},
        {"space", "\t\r  "}, {"upper", "AZ"},   {"word", "09AZaz__"}, {"xdigit", "09AFaf"},
    };
    struct span before = parser->rest;
    if (!take(parser, "[:"))
        return false;
    bool is_negated = take(parser, "^");
    int first = parser->regex->n_ranges;
    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        struct span at = parser->rest;
        if (!take(parser, classes[i].name) || !take(parser, ":]")) {
            parser->rest = at;
            continue;
        }
        for (const char *range = classes[i].ranges; range && *range; range += 2)
            add_range(parser->regex, (uint32_t)range[0], (uint32_t)range[1]);
        if (!classes[i].ranges)
            add_range(parser->regex, 0, i == 2 ? 0x7f : 0x1f);
        if (!classes[i].ranges && i != 2)
            add_range(parser->regex, 0x7f, 0x7f);
        if (is_negated)
            negate_ranges(parser->regex, first);
        return true;
    }
    parser->rest = before;
    return false;
}

static struct status *take_class_char(struct parser *parser, uint32_t *ret) {
    return take(parser, "\\") ? take_escaped(parser, ret) : take_char(parser, ret);
}

/* One member of a class: a character, a range, or a class of its own. */
static struct status *add_member(struct parser *parser) {
    uint32_t low, high;
    if (add_named_class(parser))
        return NULL;
    if (parser->rest.len > 1 && peek(parser) == '\\' && add_escape_class(parser, parser->rest.data[1])) {
        parser->rest.data += 2;
        parser->rest.len -= 2;
        return NULL;
    }
    TRY(take_class_char(parser, &low));
    high = low;
    if (parser->rest.len > 1 && peek(parser) == '-' && parser->rest.data[1] != ']') {
        take(parser, "-");
        TRY(take_class_char(parser, &high));
    }
    if (high < low)
        return wrong(parser, "invalid character class range");
    add_range(parser->regex, low, high);
    return NULL;
}

static struct status *parse_class(struct parser *parser) {
    int first = parser->regex->n_ranges;
    bool is_negated = take(parser, "^");
    do {
        if (parser->rest.len == 0)
            return wrong(parser, "missing ]");
        TRY(add_member(parser));
    } while (!take(parser, "]"));
    if (parser->flags.ignores_case)
        TRY(fold_ranges(parser, first));
    if (is_negated)
        negate_ranges(parser->regex, first);
    return emit_ranges(parser, first);
}

/* ---- atoms ---- */

static struct status *parse_alternatives(struct parser *parser);

/* "(?ims-U)" up to its ")" or ":", which is left. */
static struct status *parse_flags(struct parser *parser) {
    bool value = true;
    for (; parser->rest.len > 0 && peek(parser) != ')' && peek(parser) != ':'; parser->rest.data++, parser->rest.len--) {
        switch (peek(parser)) {
        case 'i':
            parser->flags.ignores_case = value;
            break;
        case 's':
            parser->flags.dot_takes_newline = value;
            break;
        case 'm':
            parser->flags.by_lines = value;
            break;
        case 'U': /* which of several matches: of no matter here */
            break;
        case '-':
            value = false;
            break;
        default:
            return wrong(parser, "invalid or unsupported Perl syntax: (?");
        }
    }
    return parser->rest.len == 0 ? wrong(parser, "missing )") : NULL;
}

static struct status *skip_group_name(struct parser *parser) {
    const char *end = memchr(parser->rest.data, '>', parser->rest.len);
    if (!end || end == parser->rest.data)
        return wrong(parser, "invalid named capture group");
    parser->rest.len -= (size_t)(end + 1 - parser->rest.data);
    parser->rest.data = end + 1;
    return NULL;
}

/* After "(". Flags that are set inside hold to the group's end; "(?i)" alone holds on. */
static struct status *parse_group(struct parser *parser) {
    struct flags before = parser->flags;
    if (take(parser, "?P<")) {
        TRY(skip_group_name(parser));
    } else if (take(parser, "?")) {
        TRY(parse_flags(parser));
        if (take(parser, ")"))
            return NULL;
        take(parser, ":");
    }
    if (++parser->depth > REGEX_MAX_DEPTH)
        return wrong(parser, "expression nests too deeply");
    TRY(parse_alternatives(parser));
    parser->depth--;
    if (!take(parser, ")"))
        return wrong(parser, "missing )");
    parser->flags = before;
    return NULL;
}

static struct status *emit_check(struct parser *parser, enum regex_place place) {
    return emit(parser, STEP_CHECK, place, parser->regex->n_steps + 1);
}

static struct status *parse_dot(struct parser *parser) {
    int first = parser->regex->n_ranges;
    add_range(parser->regex, 0, parser->flags.dot_takes_newline ? REGEX_MAX_CHAR : '\n' - 1);
    if (!parser->flags.dot_takes_newline)
        add_range(parser->regex, '\n' + 1, REGEX_MAX_CHAR);
    return emit_ranges(parser, first);
}

static struct status *parse_escape(struct parser *parser) {
    uint32_t c;
    int first = parser->regex->n_ranges;
    if (take(parser, "A"))
        return emit_check(parser, PLACE_BEGIN);
    if (take(parser, "z"))
        return emit_check(parser, PLACE_END);
    if (take(parser, "b"))
        return emit_check(parser, PLACE_WORD);
    if (take(parser, "B"))
        return emit_check(parser, PLACE_NO_WORD);
    if (take(parser, "C"))
        return status_unimplemented("Single bytes (\\C) in regular expressions: pattern %.*s", (int)parser->whole.len, parser->whole.data);
    if (parser->rest.len > 0 && add_escape_class(parser, peek(parser))) {
        parser->rest.data++;
        parser->rest.len--;
        return emit_ranges(parser, first);
    }
    TRY(take_escaped(parser, &c));
    return emit_char(parser, c);
}

/* \Q…\E: all but its last character are done here; that one may be repeated. */
static struct status *parse_quoted(struct parser *parser) {
    uint32_t c;
    while (parser->rest.len > 0 && !take(parser, "\\E")) {
        TRY(take_char(parser, &c));
        TRY(emit_char(parser, c));
    }
    return NULL;
}

/* "{n}", "{n,}", "{n,m}"; anything else is plain text. max -1: no limit. */
static bool take_counts(struct parser *parser, int64_t *ret_min, int64_t *ret_max) {
    struct span before = parser->rest;
    if (take(parser, "{") && (*ret_min = take_number(parser, 10, 6)) >= 0) {
        *ret_max = *ret_min;
        if (take(parser, ","))
            *ret_max = take_number(parser, 10, 6);
        if (take(parser, "}"))
            return true;
    }
    parser->rest = before;
    return false;
}

static struct status *parse_atom(struct parser *parser) {
    int64_t unused;
    uint32_t c;
    if (take(parser, "("))
        return parse_group(parser);
    if (take(parser, "["))
        return parse_class(parser);
    if (take(parser, "."))
        return parse_dot(parser);
    if (take(parser, "^"))
        return emit_check(parser, parser->flags.by_lines ? PLACE_LINE_BEGIN : PLACE_BEGIN);
    if (take(parser, "$"))
        return emit_check(parser, parser->flags.by_lines ? PLACE_LINE_END : PLACE_END);
    if (take(parser, "\\Q"))
        return parse_quoted(parser);
    if (take(parser, "\\"))
        return parse_escape(parser);
    if ((strchr("*+?", peek(parser)) && peek(parser)) || take_counts(parser, &unused, &unused))
        return wrong(parser, "no argument for repetition operator");
    TRY(take_char(parser, &c));
    return emit_char(parser, c);
}

/* ---- repetition ---- */

/* The steps [begin, end of program) become the body of min to max repetitions. The body is taken out and put back as often as needed. */
static struct status *repeat(struct parser *parser, int begin, int64_t min, int64_t max) {
    struct regex *regex = parser->regex;
    int n = regex->n_steps - begin;
    struct regex_step *body = xmalloc(((size_t)n + 1) * sizeof(*body));
    memcpy(body, regex->steps + begin, (size_t)n * sizeof(*body));
    struct status *st = NULL;
    regex->n_steps = begin;
    int64_t n_copies = max < 0 ? MAX(min, 1) : max;
    for (int64_t i = 0; !st && i < n_copies; i++) {
        bool is_optional = i >= min, is_last = i == n_copies - 1;
        int split = regex->n_steps;
        if (is_optional)
            st = emit(parser, STEP_SPLIT, split + 1, 0);
        int first = regex->n_steps, by = first - begin;
        for (int k = 0; !st && k < n; k++) {
            struct regex_step step = body[k];
            bool has_x = step.kind == STEP_SPLIT || step.kind == STEP_JUMP, has_y = step.kind == STEP_SPLIT || step.kind == STEP_CHECK;
            st = emit(parser, step.kind, step.x + (has_x ? by : 0), step.y + (has_y ? by : 0));
        }
        if (!st && max < 0 && is_last)
            st = is_optional ? emit(parser, STEP_JUMP, split, 0) : emit(parser, STEP_SPLIT, first, regex->n_steps + 1);
        if (!st && is_optional)
            regex->steps[split].y = regex->n_steps; /* past this copy: those after it are optional, too */
    }
    free(body);
    return st;
}

static struct status *parse_repeated(struct parser *parser) {
    int begin = parser->regex->n_steps;
    int64_t min, max;
    bool is_repeated = false;
    TRY(parse_atom(parser));
    for (;;) {
        if (take(parser, "*"))
            min = 0, max = -1;
        else if (take(parser, "+"))
            min = 1, max = -1;
        else if (take(parser, "?"))
            min = 0, max = 1;
        else if (!take_counts(parser, &min, &max))
            return NULL;
        if (min > REGEX_MAX_REPEAT || max > REGEX_MAX_REPEAT || (max >= 0 && max < min))
            return wrong(parser, "invalid repetition size");
        if (is_repeated)
            return wrong(parser, "bad repetition operator");
        is_repeated = true;
        TRY(repeat(parser, begin, min, max));
        take(parser, "?"); /* lazy or not, the same texts match */
    }
}

/* ---- sequences and alternatives ---- */

static struct status *parse_sequence(struct parser *parser) {
    while (parser->rest.len > 0 && peek(parser) != '|' && peek(parser) != ')')
        TRY(parse_repeated(parser));
    return NULL;
}

/* Puts a split in front of the steps [begin, end of program): they and what they name move by one. */
static struct status *insert_split(struct parser *parser, int begin) {
    struct regex *regex = parser->regex;
    TRY(emit(parser, STEP_SPLIT, 0, 0));
    memmove(regex->steps + begin + 1, regex->steps + begin, (size_t)(regex->n_steps - begin - 1) * sizeof(*regex->steps));
    for (int i = begin + 1; i < regex->n_steps; i++) {
        struct regex_step *step = &regex->steps[i];
        step->x += step->kind == STEP_SPLIT || step->kind == STEP_JUMP;
        step->y += step->kind == STEP_SPLIT || step->kind == STEP_CHECK;
    }
    return NULL;
}

/* What came before a "|" is its left side as a whole, whatever number of alternatives that holds. */
static struct status *parse_alternatives(struct parser *parser) {
    struct regex *regex = parser->regex;
    int begin = regex->n_steps;
    TRY(parse_sequence(parser));
    while (take(parser, "|")) {
        TRY(insert_split(parser, begin));
        int jump = regex->n_steps;
        TRY(emit(parser, STEP_JUMP, 0, 0));
        regex->steps[begin] = (struct regex_step){STEP_SPLIT, begin + 1, regex->n_steps};
        TRY(parse_sequence(parser));
        regex->steps[jump].x = regex->n_steps;
    }
    return NULL;
}

struct status *regex_new(struct span pattern, struct regex **ret) {
    struct parser parser = {.regex = xcalloc(1, sizeof(struct regex)), .whole = pattern, .rest = pattern};
    struct status *st = parse_alternatives(&parser);
    if (!st && parser.rest.len > 0)
        st = wrong(&parser, "unexpected )");
    if (!st)
        st = emit(&parser, STEP_END, 0, 0);
    if (st)
        regex_free(parser.regex);
    else
        *ret = parser.regex;
    return st;
}
