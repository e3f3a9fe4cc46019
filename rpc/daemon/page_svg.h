/* Draws boxes and arrows as SVG, from a page's JSON. All text is escaped, and nothing is fetched.
 *
 *   {"width": 500, "height": 300,                                    pixels
 *    "colours": ["/job:ps/…", …],                                    the legend; a box has one
 *    "boxes": [{"x", "y", "width", "height", "colour": 0, "title": "…", "lines": ["…", …]}, …],
 *    "arrows": [{"x1", "y1", "x2", "y2", "is_control", "is_between_devices"}, …]} */
#ifndef MILLRACE_RPC_DAEMON_PAGE_SVG_H
#define MILLRACE_RPC_DAEMON_PAGE_SVG_H

#include "common/base/str.h"
#include "rpc/daemon/page_read.h"

/* Appends an <svg> element. `is_file`: a file of its own, with a background. What would be behind
 * max_bytes is left out. */
void page_svg_write(struct str *out, const struct page_value *drawing, bool is_file,
                    size_t max_bytes);

#endif
