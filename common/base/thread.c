/* Starts threads without signals. */
#include "common/base/thread.h"

#include <signal.h>

/* Signals of the process are for the thread of main's event loop. Faults and profiler signals are
 * for the thread that causes them. */
static void block_signals(sigset_t *ret_before) {
    static const int kept[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        sigdelset(&blocked, kept[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, ret_before);
}

int thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *arg), void *arg) {
    sigset_t before;
    block_signals(&before);
    int error = pthread_create(ret, attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
