/* Expects that AddressSanitizer ends a child process for what it does with freed memory. Without
 * AddressSanitizer HAS_ASAN is 0, and nothing is to be expected. Includes come after cmocka.h. */
#ifndef MILLRACE_TESTS_UNIT_CLIENT_CHILD_REPORT_H
#define MILLRACE_TESTS_UNIT_CLIENT_CHILD_REPORT_H

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/c_api.h"
#include "common/base/base.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#endif
#ifndef HAS_ASAN
#define HAS_ASAN 0
#endif

/* Runs it in a child process, whose stderr must tell of a use, or second free, of freed memory. */
static inline void expect_report(void (*use)(TF_Status *status), const char *name) {
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]), close(fds[1]);
        use(TF_NewStatus());
        _exit(0);
    }
    close(fds[1]);
    char text[1 << 16], rest[4096];
    size_t len = 0;
    for (ssize_t n; (n = read(fds[0], len + 1 < sizeof(text) ? text + len : rest,
                              len + 1 < sizeof(text) ? sizeof(text) - 1 - len : sizeof(rest))) > 0;)
        len += len + 1 < sizeof(text) ? (size_t)n : 0;
    text[len] = '\0';
    close(fds[0]);
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    bool is_told = strstr(text, "heap-use-after-free") || strstr(text, "attempting double-free");
    if (!is_told || (WIFEXITED(ended) && WEXITSTATUS(ended) == 0))
        fail_msg("%s: ended with %x:\n%s", name, (unsigned)ended, text);
}

#endif
