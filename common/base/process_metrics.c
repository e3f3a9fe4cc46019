/* Reads /proc about this process. */
#include "common/base/process_metrics.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/metrics.h"

enum { STAT_FIELDS_BEFORE_UTIME = 11 }; /* of /proc/self/stat, behind the program's name */

static void write_value(struct str *out, const char *name, const char *kind, double value,
                        const char *help) {
    metrics_write_head(out, name, kind, help);
    str_addf(out, "%s %.15g\n", name, value);
}

/* Seconds of Unix time; 0: unknown. */
static double boot_time_s(void) {
    char line[256];
    long long at = 0;
    FILE *file = fopen("/proc/stat", "re");
    while (file && at == 0 && fgets(line, sizeof(line), file))
        if (sscanf(line, "btime %lld", &at) != 1)
            at = 0;
    if (file)
        fclose(file);
    return (double)at;
}

/* The program's name may contain anything, but nothing behind it contains a parenthesis. */
static void write_stat(struct str *out) {
    char text[1024];
    unsigned long long utime, stime, start, size_bytes, n_pages;
    FILE *file = fopen("/proc/self/stat", "re");
    size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    double ticks = (double)sysconf(_SC_CLK_TCK), boot_s = boot_time_s();
    if (file)
        fclose(file);
    text[n] = '\0';
    char *at = strrchr(text, ')');
    for (int i = 0; at && i <= STAT_FIELDS_BEFORE_UTIME; i++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%llu %llu %*s %*s %*s %*s %*s %*s %llu %llu %llu", &utime, &stime,
                      &start, &size_bytes, &n_pages) != 5)
        return;
    write_value(out, "process_cpu_seconds_total", "counter", (double)(utime + stime) / ticks,
                "Processor time of the process, in user and system mode");
    write_value(out, "process_virtual_memory_bytes", "gauge", (double)size_bytes,
                "Mapped memory of the process");
    write_value(out, "process_resident_memory_bytes", "gauge",
                (double)n_pages * (double)sysconf(_SC_PAGESIZE), "Resident memory of the process");
    if (boot_s > 0)
        write_value(out, "process_start_time_seconds", "gauge", boot_s + (double)start / ticks,
                    "When the process started, in seconds of Unix time");
}

static void write_descriptors(struct str *out) {
    struct rlimit limit;
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    if (dir) {
        for (struct dirent *entry; (entry = readdir(dir));)
            n += entry->d_name[0] != '.';
        closedir(dir);
        write_value(out, "process_open_fds", "gauge", n - 1, "Open file descriptors");
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        write_value(out, "process_max_fds", "gauge", (double)limit.rlim_cur,
                    "How many file descriptors may be open");
}

void process_metrics_write(struct str *out) {
    metrics_write_head(out, "millrace_build_info", "gauge", "1, with the version of the program");
    str_addf(out, "millrace_build_info{version=\"%s\"} 1\n", MILLRACE_VERSION);
    write_stat(out);
    write_descriptors(out);
}
