/* Compiles and runs regular expressions with PCRE2 (kernels/host/text/regex.h). */
#include "kernels/host/text/regex.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/tensor/object.h"
#include "kernels/host/text/string_internal.h"
#include "kernels/host/text/utf8.h"

enum {
    WHOLE_STEPS = 200 * 1000,        /* steps of backtracking before the automaton is used */
    SEARCH_STEPS = 20 * 1000 * 1000, /* about a second */
    AUTOMATON_STEPS = 20 * 1000 * 1000,
    HEAP_KIB = 64 * 1024,
    JIT_STACK_BYTES = 1 << 20,
    WORKSPACE_MAX = 1 << 22, /* ints for the automaton's states */
    NEST_LIMIT = 2000,       /* groups inside groups in what regex_translate writes */
};

struct regex {
    struct span pattern; /* owned */
    pcre2_code *code;
    int n_groups;
    int use; /* enum regex_use */
};

struct regex_run {
    const struct regex *regex;
    pcre2_match_context *context;
    pcre2_match_data *match;
    pcre2_jit_stack *jit_stack;
    int *workspace;
    size_t n_workspace;
};

/* ---- patterns ---- */

static struct status *compile(const struct regex *regex, struct span text, uint32_t options,
                              pcre2_code **ret) {
    int error;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    CHECK(context);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, NEST_LIMIT);
    pcre2_set_compile_extra_options(context, PCRE2_EXTRA_ALLOW_SURROGATE_ESCAPES);
    options |= PCRE2_UTF | PCRE2_ALT_CIRCUMFLEX | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C;
    *ret = pcre2_compile((PCRE2_SPTR)text.data, text.len, options, &error, &at, context);
    pcre2_compile_context_free(context);
    if (*ret)
        return NULL;
    char message[256] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof(message));
    const char *what = error == PCRE2_ERROR_PATTERN_TOO_LARGE || error == PCRE2_ERROR_HEAP_FAILED ||
                               error == PCRE2_ERROR_PATTERN_TOO_COMPLICATED
                           ? "pattern too large - compile failed"
                           : message;
    return regex_invalid(regex->pattern, what, (struct span){NULL, 0});
}

struct status *regex_new(struct span pattern, int use, struct regex **ret) {
    struct str text = STR_INIT;
    struct regex *regex = xcalloc(1, sizeof(*regex));
    struct status *st = NULL;
    uint32_t n_groups = 0;
    regex->use = use;
    regex->pattern = (struct span){xstrndup(pattern.data, pattern.len), pattern.len};
    TRY_OUT(regex_translate(pattern, &text));
    struct span words = {str_text(&text), text.len};
    TRY_OUT(compile(regex, words, use & REGEX_SEARCH ? 0 : PCRE2_ANCHORED | PCRE2_ENDANCHORED,
                    &regex->code));
    if (use & REGEX_OFTEN)
        pcre2_jit_compile(regex->code,
                          /* where the compiler fails, the interpreter is used */
                          PCRE2_JIT_COMPLETE);
    pcre2_pattern_info(regex->code, PCRE2_INFO_CAPTURECOUNT, &n_groups);
    regex->n_groups = (int)n_groups;
    *ret = regex;
    regex = NULL;
out:
    str_fini(&text);
    regex_free(regex);
    return st;
}

struct status *regex_copy(const struct regex *regex, struct regex **ret) {
    return regex_new(regex->pattern, regex->use, ret);
}

void regex_free(struct regex *regex) {
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free((char *)regex->pattern.data);
    free(regex);
}

struct regex_run *regex_run_new(const struct regex *regex) {
    struct regex_run *run = xcalloc(1, sizeof(*run));
    run->regex = regex;
    run->context = pcre2_match_context_create(NULL);
    run->match = pcre2_match_data_create_from_pattern(regex->code, NULL);
    CHECK(run->context && run->match);
    size_t jit_size = 0;
    pcre2_pattern_info(regex->code, PCRE2_INFO_JITSIZE, &jit_size);
    if (jit_size &&
        (run->jit_stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, NULL)) != NULL)
        pcre2_jit_stack_assign(run->context, NULL, run->jit_stack);
    pcre2_set_heap_limit(run->context, HEAP_KIB);
    return run;
}

void regex_run_free(struct regex_run *run) {
    if (!run)
        return;
    pcre2_match_data_free(run->match);
    pcre2_match_context_free(run->context);
    pcre2_jit_stack_free(run->jit_stack);
    free(run->workspace);
    free(run);
}

/* ---- texts ---- */

/* The length of the character at a text's front, 0 where there is none. Like PCRE2 unless it is
 * asked to check, RE2 accepts the three bytes of a surrogate as a character. */
static size_t char_len(const char *text, size_t len) {
    const unsigned char *p = (const unsigned char *)text;
    if (*p < 0x80)
        return 1;
    if (p[0] == 0xed && len >= 3 && p[1] >= 0xa0 && p[1] <= 0xbf && utf8_is_continuation(text[2]))
        return 3;
    return utf8_well_formed_len(text, len);
}

/* How many bytes from the front on are well-formed characters. */
static size_t well_formed_len(struct span text) {
    size_t at = 0;
    for (size_t len = 1, end; len > 0 && at < text.len && (end = text_part_end(at, text.len)) > 0;)
        while (at < end && (len = char_len(text.data + at, text.len - at)) > 0)
            at += len;
    return at;
}

static struct status *too_much(const struct regex_run *run, struct span text, int error) {
    char message[256] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof(message));
    return status_exhausted(
        "Matching the pattern %.*s with a text of %zu bytes takes more than its limit: %s",
        (int)run->regex->pattern.len, run->regex->pattern.data, text.len, message);
}

/* Uses the automaton. Its steps are slower, but their number is not exponential. */
static struct status *matches_by_automaton(struct regex_run *run, struct span text, bool *ret) {
    pcre2_set_match_limit(run->context, AUTOMATON_STEPS);
    for (;;) {
        if (!run->workspace) {
            run->n_workspace = MAX(run->n_workspace, 4096);
            run->workspace = xcalloc(run->n_workspace, sizeof(int));
        }
        int rc = pcre2_dfa_match(run->regex->code, (PCRE2_SPTR)text.data, text.len, 0,
                                 PCRE2_NO_UTF_CHECK, run->match, run->context, run->workspace,
                                 run->n_workspace);
        *ret = rc >= 0;
        if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
            return NULL;
        if (rc != PCRE2_ERROR_DFA_WSSIZE || run->n_workspace >= WORKSPACE_MAX)
            return too_much(run, text, rc);
        free(run->workspace);
        run->workspace = NULL;
        run->n_workspace *= 4;
    }
}

struct status *regex_matches_all(struct regex_run *run, struct span text, bool *ret) {
    *ret = false;
    if (well_formed_len(text) < text.len)
        return NULL; /* nothing matches an ill-formed byte */
    pcre2_set_match_limit(run->context, WHOLE_STEPS);
    int rc = pcre2_match(run->regex->code, (PCRE2_SPTR)text.data, text.len, 0, PCRE2_NO_UTF_CHECK,
                         run->match, run->context);
    *ret = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
        return NULL;
    return matches_by_automaton(run, text, ret);
}

/* ---- replacing ---- */

/* A part of a text between ill-formed bytes, which match nothing. PCRE2 searches one stretch at a
 * time, and is told which of its ends are not ends of the whole text. */
struct stretch {
    size_t begin, end;
};

static struct status *search_stretch(struct regex_run *run, struct span text, struct stretch in,
                                     size_t at, bool *ret_found) {
    uint32_t options = PCRE2_NO_UTF_CHECK | (in.begin > 0 ? PCRE2_NOTBOL : 0) |
                       (in.end < text.len ? PCRE2_NOTEOL : 0);
    PCRE2_SPTR subject = (PCRE2_SPTR)text.data + in.begin;
    size_t len = in.end - in.begin, from = at - in.begin;
    int rc = pcre2_match(run->regex->code, subject, len, from, options, run->match, run->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(run->regex->code, subject, len, from, options | PCRE2_NO_JIT, run->match,
                         run->context);
    *ret_found = rc >= 0;
    return rc >= 0 || rc == PCRE2_ERROR_NOMATCH ? NULL : too_much(run, text, rc);
}

static struct stretch stretch_from(struct span text, size_t at) {
    return (struct stretch){at, at + well_formed_len((struct span){text.data + at, text.len - at})};
}

/* A search in a text, with its last match. */
struct search {
    struct regex_run *run;
    struct span text;
    struct stretch in; /* the stretch that `at` was in last */
    size_t match_begin, match_end;
    int64_t n_searches;
};

/* Finds the first match from `at` on. `at` never moves back, and is never inside of a character. */
static struct status *search_from(struct search *search, size_t at, bool *ret_found) {
    struct span text = search->text;
    for (;; at = search->in.begin) {
        if (unlikely(!text_goes_on(search->n_searches++)))
            return status_new(STATUS_CANCELLED, "The step was cancelled while this op ran");
        if (at > search->in.end) /* the stretch has ended at an ill-formed byte */
            search->in = stretch_from(text, at);
        TRY(search_stretch(search->run, text, search->in, at, ret_found));
        if (*ret_found) {
            const PCRE2_SIZE *match = pcre2_get_ovector_pointer(search->run->match);
            search->match_begin = search->in.begin + match[0];
            search->match_end = search->in.begin + match[1];
            return NULL;
        }
        if (search->in.end >= text.len)
            return NULL;
        search->in = stretch_from(text, search->in.end + 1);
    }
}

/* The highest number of a group in a rewrite. */
static int highest_group(struct span rewrite) {
    int highest = 0;
    for (size_t i = 0; i + 1 < rewrite.len; i++) {
        if (rewrite.data[i] != '\\')
            continue;
        char c = rewrite.data[++i];
        if (c >= '0' && c <= '9')
            highest = MAX(highest, c - '0');
    }
    return highest;
}

/* Writes the rewrite. At a backslash that means nothing it stops and returns false. */
static bool write_rewrite(const struct search *search, struct span rewrite, struct str *out) {
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(search->run->match);
    for (size_t i = 0; i < rewrite.len; i++) {
        char c = rewrite.data[i];
        if (c != '\\') {
            str_add_char(out, c);
            continue;
        }
        c = ++i < rewrite.len ? rewrite.data[i] : '\0';
        if (c >= '0' && c <= '9') {
            const PCRE2_SIZE *group = ends + 2 * (c - '0');
            if (group[0] != PCRE2_UNSET)
                str_add_bytes(out, search->text.data + search->in.begin + group[0],
                              group[1] - group[0]);
        } else if (c == '\\') {
            str_add_char(out, c);
        } else {
            return false;
        }
    }
    return true;
}

static struct status *replace_first(struct search *search, struct span rewrite, struct str *out) {
    bool is_found;
    size_t before = out->len, end = 0;
    TRY(search_from(search, 0, &is_found));
    if (is_found) {
        end = search->match_end;
        str_add_bytes(out, search->text.data, search->match_begin);
        if (!write_rewrite(search, rewrite, out)) {
            out->len = before;
            end = 0;
        }
    }
    str_add_bytes(out, search->text.data + end, search->text.len - end);
    return NULL;
}

/* Replaces all matches. An empty match where the last match ended does not count, so the next
 * character is copied instead. */
static struct status *replace_all(struct search *search, struct span rewrite, struct str *out) {
    struct span text = search->text;
    size_t at = 0, last_end = SIZE_MAX;
    while (at <= text.len) {
        bool is_found;
        TRY(search_from(search, at, &is_found));
        if (!is_found)
            break;
        str_add_bytes(out, text.data + at, search->match_begin - at);
        at = search->match_begin;
        if (at == search->match_end && at == last_end) {
            size_t len = at < text.len ? MAX(char_len(text.data + at, text.len - at), 1) : 0;
            str_add_bytes(out, text.data + at, len);
            at += MAX(len, 1);
            continue;
        }
        write_rewrite(search, rewrite, out);
        at = last_end = search->match_end;
    }
    if (at < text.len)
        str_add_bytes(out, text.data + at, text.len - at);
    return NULL;
}

struct status *regex_replace(struct regex_run *run, struct span text, struct span rewrite,
                             bool replaces_all, struct str *out) {
    if (highest_group(rewrite) > run->regex->n_groups) {
        str_add_bytes(out, text.data, text.len);
        return NULL;
    }
    pcre2_set_match_limit(run->context, SEARCH_STEPS);
    struct search search = {.run = run, .text = text, .in = stretch_from(text, 0)};
    return (replaces_all ? replace_all : replace_first)(&search, rewrite, out);
}
