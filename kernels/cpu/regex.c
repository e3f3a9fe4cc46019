/* Running a pattern's program: all places in it that the text read so far may lead to, character after character. */
#include "kernels/cpu/regex.h"

#include <stdlib.h>

#include "kernels/cpu/regex_internal.h"
#include "kernels/cpu/string_internal.h"

enum { NO_CHAR = UINT32_MAX };

/* A set of steps that keeps their order of arrival. */
struct places {
    int *items, *at; /* at[step]: where it stands in items, if items[at[step]] == step */
    int n;
};

struct run {
    const struct regex *regex;
    struct places now, next;
    int *stack;
    uint32_t before, after; /* the characters around the place in the text, NO_CHAR at its ends */
};

static bool places_add(struct places *places, int step) {
    int at = places->at[step];
    if (at < places->n && places->items[at] == step)
        return false;
    places->at[step] = places->n;
    places->items[places->n++] = step;
    return true;
}

static bool is_word(uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

static bool is_at(const struct run *run, enum regex_place place) {
    bool is_boundary = is_word(run->before) != is_word(run->after);
    switch (place) {
    case PLACE_BEGIN:
        return run->before == NO_CHAR;
    case PLACE_END:
        return run->after == NO_CHAR;
    case PLACE_LINE_BEGIN:
        return run->before == NO_CHAR || run->before == '\n';
    case PLACE_LINE_END:
        return run->after == NO_CHAR || run->after == '\n';
    case PLACE_WORD:
        return is_boundary;
    default:
        return !is_boundary;
    }
}

/* Adds a step and all that it leads to without reading. A step enters the stack once, when it is added. */
static void follow(struct run *run, struct places *places, int first) {
    int n = 0;
    if (places_add(places, first))
        run->stack[n++] = first;
    while (n > 0) {
        const struct regex_step *step = &run->regex->steps[run->stack[--n]];
        bool goes_x = step->kind == STEP_SPLIT || step->kind == STEP_JUMP;
        int x = step->x;
        if (step->kind == STEP_CHECK && is_at(run, (enum regex_place)step->x)) {
            goes_x = true;
            x = step->y;
        }
        if (goes_x && places_add(places, x))
            run->stack[n++] = x;
        if (step->kind == STEP_SPLIT && places_add(places, step->y))
            run->stack[n++] = step->y;
    }
}

static bool in_ranges(const struct regex *regex, const struct regex_step *step, uint32_t c) {
    for (int i = 0; i < step->y; i++) {
        const struct regex_range *range = &regex->ranges[step->x + i];
        if (c >= range->low && c <= range->high)
            return true;
    }
    return false;
}

static uint32_t next_char(struct span *text) {
    size_t len;
    if (text->len == 0)
        return NO_CHAR;
    uint32_t c = utf8_decode(*text, &len);
    bool is_replacement = len == 3 && memcmp(text->data, "\xef\xbf\xbd", 3) == 0;
    text->data += len;
    text->len -= len;
    return c == 0xfffd && !is_replacement ? NO_CHAR - 1 : c; /* ill-formed: in no range */
}

static bool run_over(struct run *run, struct span text) {
    run->before = NO_CHAR;
    run->after = next_char(&text);
    follow(run, &run->now, 0);
    while (run->after != NO_CHAR && run->now.n > 0) {
        uint32_t c = run->after;
        run->before = c;
        run->after = next_char(&text);
        run->next.n = 0;
        for (int i = 0; i < run->now.n; i++) {
            int number = run->now.items[i];
            const struct regex_step *step = &run->regex->steps[number];
            if (step->kind == STEP_CHAR && in_ranges(run->regex, step, c))
                follow(run, &run->next, number + 1);
        }
        struct places swapped = run->now;
        run->now = run->next;
        run->next = swapped;
    }
    if (run->after != NO_CHAR)
        return false;
    for (int i = 0; i < run->now.n; i++)
        if (run->regex->steps[run->now.items[i]].kind == STEP_END)
            return true;
    return false;
}

bool regex_matches_all(const struct regex *regex, struct span text) {
    size_t n = (size_t)regex->n_steps;
    int *memory = xcalloc(5 * n, sizeof(int));
    struct run run = {.regex = regex, .now = {memory, memory + n, 0}, .next = {memory + 2 * n, memory + 3 * n, 0}, .stack = memory + 4 * n};
    bool is_match = run_over(&run, text);
    free(memory);
    return is_match;
}

void regex_free(struct regex *regex) {
    if (!regex)
        return;
    free(regex->steps);
    free(regex->ranges);
    free(regex);
}
