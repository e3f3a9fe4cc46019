/* Looks at this host: limits, memory, disks, devices, its clock and its name. */
#include "tfctl/doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include "common/base/units.h"

/* Reads the first line of a small file. False: there is none. */
static bool read_line(const char *path, char *line, int size) {
    FILE *file = fopen(path, "re");
    bool is_read = file && fgets(line, size, file);
    if (file)
        fclose(file);
    if (is_read)
        line[strcspn(line, "\n")] = '\0';
    return is_read;
}

static bool has_rdma_device(void) {
    DIR *dir = opendir("/sys/class/infiniband");
    bool has = false;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        has |= entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return has;
}

void doctor_open_files(const struct doctor *doctor, struct finding *finding) {
    enum { WANTED = 16384 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        finding_set(finding, DOCTOR_OK, "", "not known");
    else if (limit.rlim_cur < WANTED)
        finding_set(finding, DOCTOR_WARNING,
                    "raise it where the daemons start: ulimit -n 65536, or LimitNOFILE=65536 in "
                    "a unit; each client, task and stream takes one",
                    "a process may open %llu files", (unsigned long long)limit.rlim_cur);
    else
        finding_set(finding, DOCTOR_OK, "", "a process may open %llu files",
                    (unsigned long long)limit.rlim_cur);
}

void doctor_locked_memory(const struct doctor *doctor, struct finding *finding) {
    const rlim_t wanted = (rlim_t)4 << 30;
    struct rlimit limit;
    struct str size = STR_INIT;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        finding_set(finding, DOCTOR_OK, "", "no limit");
        return;
    }
    units_add_size(&size, (double)limit.rlim_cur);
    bool is_too_low = has_rdma_device() && limit.rlim_cur < wanted;
    finding_set(finding, is_too_low ? DOCTOR_WARNING : DOCTOR_OK,
                is_too_low ? "RDMA pins memory: ulimit -l unlimited, or LimitMEMLOCK=infinity in "
                             "a unit; what cannot be pinned is sent over TCP"
                           : "",
                "a process may lock %s%s", str_text(&size),
                has_rdma_device() ? "" : ", which only RDMA needs");
    str_fini(&size);
}

void doctor_huge_pages(const struct doctor *doctor, struct finding *finding) {
    char line[200];
    if (!read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)))
        finding_set(finding, DOCTOR_OK, "", "the kernel has none");
    else if (strstr(line, "[never]"))
        finding_set(finding, DOCTOR_WARNING,
                    "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; large tensors "
                    "ask for them",
                    "transparent huge pages are switched off");
    else
        finding_set(finding, DOCTOR_OK, "", "transparent huge pages: %s", line);
}

/* Returns whether there is enough; appends how much. */
static bool look_at_disk(const char *path, struct str *out) {
    const double min_bytes = 1 << 30, min_part = 0.05;
    struct statvfs info;
    if (statvfs(path, &info) != 0) {
        str_addf(out, "%s: %s; ", path, strerror(errno));
        return false;
    }
    double free_bytes = (double)info.f_bavail * (double)info.f_frsize,
           all_bytes = (double)info.f_blocks * (double)info.f_frsize;
    str_addf(out, "%s ", path);
    units_add_size(out, free_bytes);
    str_add(out, " free; ");
    return free_bytes >= min_bytes && free_bytes >= all_bytes * min_part;
}

void doctor_disk(const struct doctor *doctor, struct finding *finding) {
    const char *temporary = getenv("TMPDIR");
    struct str text = STR_INIT;
    bool is_enough = look_at_disk(".", &text);
    is_enough &= look_at_disk(temporary && *temporary ? temporary : "/tmp", &text);
    finding_set(finding, is_enough ? DOCTOR_OK : DOCTOR_WARNING,
                is_enough ? "" : "make room, or save checkpoints elsewhere (--file-root)", "%.*s",
                (int)text.len - 2, str_text(&text));
    str_fini(&text);
}

void doctor_memory(const struct doctor *doctor, struct finding *finding) {
    char line[100];
    double host_bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    struct str host = STR_INIT, group = STR_INIT;
    units_add_size(&host, host_bytes);
    double limit_bytes =
        read_line("/sys/fs/cgroup/memory.max", line, sizeof(line)) ? strtod(line, NULL) : 0;
    if (limit_bytes > 0 && limit_bytes < host_bytes) {
        units_add_size(&group, limit_bytes);
        finding_set(finding, DOCTOR_WARNING,
                    "give the workers a --memory-limit below it; otherwise the kernel kills a "
                    "task that is refused nothing",
                    "the host has %s, but this container or unit may use %s", str_text(&host),
                    str_text(&group));
    } else {
        finding_set(finding, DOCTOR_OK, "", "%s", str_text(&host));
    }
    str_fini(&host);
    str_fini(&group);
}

void doctor_cores(const struct doctor *doctor, struct finding *finding) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    char line[100];
    double quota = 0, period = 0;
    if (read_line("/sys/fs/cgroup/cpu.max", line, sizeof(line)) &&
        sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0 && quota / period < (double)n)
        finding_set(finding, DOCTOR_WARNING,
                    "give the daemons --threads for the quota; they count the cores",
                    "%ld cores, but a quota of %.1f", n, quota / period);
    else
        finding_set(finding, DOCTOR_OK, "", "%ld", n);
}

void doctor_clock(const struct doctor *doctor, struct finding *finding) {
    struct timex state = {.modes = 0};
    if (adjtimex(&state) == TIME_ERROR || (state.status & STA_UNSYNC))
        finding_set(finding, DOCTOR_WARNING,
                    "run chrony or systemd-timesyncd; certificates, logs and traces depend on the "
                    "time",
                    "the kernel does not know of a synchronized clock");
    else
        finding_set(finding, DOCTOR_OK, "", "synchronized");
}

void doctor_rdma(const struct doctor *doctor, struct finding *finding) {
    if (!has_rdma_device()) {
        finding_set(finding, DOCTOR_OK, "", "no device: tasks of other hosts are reached over TCP");
        return;
    }
    void *library = dlopen("libibverbs.so.1", RTLD_LAZY);
    if (!library)
        finding_set(finding, DOCTOR_WARNING,
                    "install libibverbs1 and ibverbs-providers; without them large tensors go "
                    "over TCP",
                    "there is a device, but no libibverbs");
    else if (access("/dev/infiniband", R_OK | X_OK) != 0)
        finding_set(finding, DOCTOR_WARNING,
                    "give the daemons /dev/infiniband (PrivateDevices=no; a container's devices)",
                    "there is a device, but /dev/infiniband: %s", strerror(errno));
    else
        finding_set(finding, DOCTOR_OK, "", "there is a device, and its library");
    if (library)
        dlclose(library);
}

void doctor_host_name(const struct doctor *doctor, struct finding *finding) {
    char name[256] = "", numeric[NI_MAXHOST] = "";
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    gethostname(name, sizeof(name) - 1);
    int error = getaddrinfo(name, NULL, &hints, &list);
    if (error == 0)
        getnameinfo(list->ai_addr, list->ai_addrlen, numeric, sizeof(numeric), NULL, 0,
                    NI_NUMERICHOST);
    if (error)
        finding_set(finding, DOCTOR_WARNING,
                    "add it to DNS or /etc/hosts, or name hosts by their addresses",
                    "this host's name %s is not resolved: %s", name, gai_strerror(error));
    else if (strncmp(numeric, "127.", 4) == 0 || strcmp(numeric, "::1") == 0)
        finding_set(finding, DOCTOR_WARNING,
                    "name this host by its address in --cluster and --listen; tasks that listen "
                    "at the name are reached from this host only",
                    "this host's name %s means %s here", name, numeric);
    else
        finding_set(finding, DOCTOR_OK, "", "%s is %s", name, numeric);
    if (list)
        freeaddrinfo(list);
}
