/* Chooses the unit of a size or time. */
#include "common/base/units.h"

#include <math.h>

void units_add_size(struct str *out, double bytes) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t i = 0;
    for (; fabs(bytes) >= 1024 && i + 1 < ARRAY_LEN(names); i++)
        bytes /= 1024;
    str_addf(out, i == 0 ? "%.0f %s" : "%.1f %s", bytes, names[i]);
}

void units_add_duration(struct str *out, double seconds) {
    double s = fabs(seconds);
    const char *sign = seconds < 0 ? "−" : "";
    if (s == 0)
        str_add(out, "0 s");
    else if (s < 1e-6)
        str_addf(out, "%s%.3g ns", sign, s * 1e9);
    else if (s < 1e-3)
        str_addf(out, "%s%.3g µs", sign, s * 1e6);
    else if (s < 1)
        str_addf(out, "%s%.3g ms", sign, s * 1e3);
    else if (s < 120)
        str_addf(out, "%s%.3g s", sign, s);
    else if (s < 7200)
        str_addf(out, "%s%d min %d s", sign, (int)s / 60, (int)s % 60);
    else if (s < 172800)
        str_addf(out, "%s%d h %d min", sign, (int)s / 3600, (int)s / 60 % 60);
    else
        str_addf(out, "%s%.0f d %d h", sign, floor(s / 86400), (int)(fmod(s, 86400) / 3600));
}
