/* Compares the drawing of a noun's states in a header with the table that the code checks.
 *
 * The drawing is part of a comment. It begins after a line that contains its title, has a line
 * "FROM -> TO   when" per allowed move, "(new) -> TO" for where an object starts, and ends with
 * the comment or with the first line after the moves that has none. A line whose first word is
 * "->" continues the line above: it has the same FROM. */
#ifndef MILLRACE_TESTS_UNIT_STATE_DRAWING_H
#define MILLRACE_TESTS_UNIT_STATE_DRAWING_H

#include <stdio.h>

#include "common/base/state_machine.h"

/* Reads one line: true and the two names if it is a move. `from` keeps its value for lines that
 * continue. */
static bool drawing_read_move(const char *line, char from[64], char to[64]) {
    char word[64];
    const char *at = line + strspn(line, " *");
    if (strncmp(at, "-> ", 3) == 0)
        return sscanf(at + 3, " %63s", to) == 1;
    if (sscanf(at, "%63s -> %63s", word, to) != 2)
        return false;
    snprintf(from, 64, "%s", word);
    return true;
}

/* Appends the moves that the drawing shows to `out`, a line "FROM -> TO" each, in their order.
 * The test fails if the file cannot be read. */
static void drawing_read(const char *path, const char *title, struct str *out) {
    char line[256], from[64] = "", to[64];
    bool is_begun = false, has_moves = false;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        if (!is_begun) {
            is_begun = strstr(line, title) != NULL;
            continue;
        }
        bool is_move = drawing_read_move(line, from, to);
        if (is_move)
            str_addf(out, "%s -> %s\n", from, to);
        if ((has_moves && !is_move) || strstr(line, "*/"))
            break;
        has_moves |= is_move;
    }
    fclose(file);
}

/* Fails if the drawing below `title` in the file is not the machine's table, in its order. */
static void assert_drawing_is_table(const char *path, const char *title,
                                    const struct state_machine *machine) {
    struct str drawn = STR_INIT, table = STR_INIT;
    drawing_read(path, title, &drawn);
    state_machine_write_moves(machine, &table);
    assert_string_equal(str_text(&drawn), str_text(&table));
    str_fini(&drawn);
    str_fini(&table);
}

#endif
