/* Reports of mistakes, the names in them, and the source lines of addresses in kernels. */
#include "tests/cuda/sim/device.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void report(const char *format, ...) {
    char text[2048];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (length >= (int)sizeof text)
        length = (int)sizeof text - 1;
    struct sim_answer answer = {.kind = SIM_REPORT, .n_bytes = (uint32_t)length};
    answer_send(&answer, text);
}

enum { MAX_NAMES = 1 << 16 };
static const char *names[MAX_NAMES];
static uint32_t n_names;

uint32_t name_intern(const char *name) {
    for (uint32_t i = 0; i < n_names; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    if (n_names == MAX_NAMES)
        return 0;
    names[n_names] = strdup(name);
    return n_names++;
}

const char *name_text(uint32_t name) { return name < n_names ? names[name] : "?"; }

/* The first line that addr2line prints, with the folders cut off. */
static bool line_of(const char *object, unsigned long offset, char *text, size_t size) {
    char command[1200], line[1024];
    snprintf(command, sizeof command, "addr2line -e '%s' 0x%lx 2>/dev/null", object, offset);
    FILE *pipe = popen(command, "re");
    if (pipe == NULL)
        return false;
    bool is_known = fgets(line, sizeof line, pipe) != NULL && line[0] != '?';
    pclose(pipe);
    if (!is_known)
        return false;
    line[strcspn(line, " \n")] = '\0';
    const char *slash = strrchr(line, '/');
    snprintf(text, size, "%s", slash != NULL ? slash + 1 : line);
    return true;
}

void source_of(const void *address, char *text, size_t size) {
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        snprintf(text, size, "%p", address);
        return;
    }
    /* The address is one behind the call, so the byte before it belongs to the line. */
    unsigned long offset = (unsigned long)((const char *)address - (const char *)info.dli_fbase);
    if (!line_of(info.dli_fname, offset - 1, text, size))
        snprintf(text, size, "%s+0x%lx", info.dli_fname, offset);
}
