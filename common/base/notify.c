/* Sends datagrams to systemd's notification socket. */
#include "common/base/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static bool notify(const char *lines, bool waits) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len > sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return false;
    memcpy(address.sun_path, path, len);
    if (path[0] == '@') /* an abstract name begins with a zero byte */
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | (waits ? 0 : SOCK_NONBLOCK), 0);
    if (fd < 0)
        return false;
    struct timeval wait = {.tv_sec = NOTIFY_WAIT_S};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    size_t n_bytes = strlen(lines);
    ssize_t n = sendto(fd, lines, n_bytes, MSG_NOSIGNAL, (const void *)&address, size);
    close(fd);
    return n == (ssize_t)n_bytes;
}

bool notify_send(const char *lines) { return notify(lines, false); }
bool notify_send_waiting(const char *lines) { return notify(lines, true); }

/* Returns 0 when the variable is absent or no number. */
static long long number_of(const char *name) {
    const char *text = getenv(name);
    char *end;
    long long value = text ? strtoll(text, &end, 10) : 0;
    return text && *text && *end == '\0' && value > 0 ? value : 0;
}

int64_t notify_watchdog_ms(void) {
    long long pid = number_of("WATCHDOG_PID");
    if (pid != 0 && pid != (long long)getpid())
        return 0;
    return number_of("WATCHDOG_USEC") / 1000;
}
