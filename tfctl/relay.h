/* Shows what children print, line by line, each line after its child's name:
 *
 *   ps/0     | 2026-01-31T10:00:00.123Z I /job:ps/task:0 serving on port 40123
 *
 * It writes to stderr and never blocks: while stderr takes nothing, the children's pipes are not
 * read, so the children wait. The lines of a quiet source are not shown; its last ones are kept for
 * relay_show_tail. One thread. */
#ifndef MILLRACE_TFCTL_RELAY_H
#define MILLRACE_TFCTL_RELAY_H

#include "common/base/str.h"

struct relay {
    int name_width;
    struct str pending; /* for stderr */
    bool is_broken;     /* stderr is closed: all lines are dropped */
};

struct relay_source {
    const char *name;
    bool is_quiet;
    struct str line; /* not ended yet */
    struct str tail; /* quiet: the last lines */
};

void relay_init(struct relay *relay, int name_width);
void relay_fini(struct relay *relay);
void relay_source_init(struct relay_source *source, const char *name, bool is_quiet);
void relay_source_fini(struct relay_source *source);

enum relay_outcome { RELAY_MORE, RELAY_NOTHING_NOW, RELAY_END };
/* Reads some of what has arrived. */
enum relay_outcome relay_read(struct relay *relay, struct relay_source *source, int fd);
/* The child has ended: its last line may lack a newline. */
void relay_end(struct relay *relay, struct relay_source *source);
void relay_show_tail(struct relay *relay, struct relay_source *source);
/* Adds a line of tfctl's own, in order with the others; it is always shown. */
void relay_say(struct relay *relay, const char *format, ...) PRINTF_LIKE(2, 3);

/* Then the caller waits for stderr and reads no more. */
static inline bool relay_is_full(const struct relay *relay) { return relay->pending.len > 0; }
/* Writes as much as stderr takes now. */
void relay_flush(struct relay *relay);
/* Call it before the process ends: waits for stderr, at most timeout_ms. */
void relay_flush_until(struct relay *relay, int timeout_ms);

#endif
