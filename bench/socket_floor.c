/* What a socket of this machine can do: one process asks another for so many bytes and reads
 * them into memory that it has used before, as a task does that pulls a tensor. Prints the
 * milliseconds of each round.
 *
 *     socket_floor tcp|unix BYTES ROUNDS */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { WRITE_BYTES = 1 << 20, BUFFER_BYTES = 4 << 20 };

static void fail(const char *what) {
    fprintf(stderr, "socket_floor: %s: %s\n", what, strerror(errno));
    exit(74);
}

static void tcp_pair(int fds[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(address);
    int one = 1, listening = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&address, len) || listen(listening, 1) ||
        getsockname(listening, (struct sockaddr *)&address, &len))
        fail("listen");
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fds[0], (struct sockaddr *)&address, len))
        fail("connect");
    fds[1] = accept(listening, NULL, NULL);
    close(listening);
    for (int i = 0; i < 2; i++)
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void unix_pair(int fds[2]) {
    int size = BUFFER_BYTES;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
        fail("socketpair");
    for (int i = 0; i < 2; i++)
        setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

static void serve(int fd, const char *data, size_t n) {
    char word;
    while (read(fd, &word, 1) == 1)
        for (size_t at = 0; at < n;) {
            ssize_t written = write(fd, data + at, n - at < WRITE_BYTES ? n - at : WRITE_BYTES);
            if (written < 0)
                fail("write");
            at += (size_t)written;
        }
}

static void ask(int fd, char *to, size_t n) {
    if (write(fd, "?", 1) != 1)
        fail("write");
    for (size_t at = 0; at < n;) {
        ssize_t got = read(fd, to + at, n - at);
        if (got <= 0)
            fail("read");
        at += (size_t)got;
    }
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 64;
    size_t n = strtoull(argv[2], NULL, 10);
    int rounds = (int)strtol(argv[3], NULL, 10), fds[2];
    char *data = malloc(n);
    if (!data || rounds < 1)
        return 64;
    memset(data, 1, n);
    if (strcmp(argv[1], "tcp") == 0)
        tcp_pair(fds);
    else
        unix_pair(fds);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        memset(data, 2, n); /* pages of its own */
        serve(fds[1], data, n);
        return 0;
    }
    close(fds[1]);
    ask(fds[0], data, n); /* warm */
    for (int i = 0; i < rounds; i++) {
        int64_t start = clock_now_ns();
        ask(fds[0], data, n);
        printf("%.4f\n", (double)(clock_now_ns() - start) / 1e6);
    }
    close(fds[0]);
    waitpid(child, NULL, 0);
    return 0;
}
