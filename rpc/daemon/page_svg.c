/* Writes the elements of a drawing: a legend, boxes and arrows. */
#include "rpc/daemon/page_svg.h"

enum { LEGEND_LINE = 20, LINE_HEIGHT = 17, MAX_PIXELS = 100000, N_COLOURS = 8, MAX_LEGEND = 100 };

/* Dark text is readable on all of them. */
static const char *const fills[N_COLOURS] = {"#cfe3fa", "#fbe0c2", "#d3eecf", "#ead9f7",
                                             "#f9d3d8", "#cdeeec", "#f3edb9", "#dfe3e8"};

static int pixels(const struct page_value *of, const char *key) {
    int64_t value = page_get_int(of, key);
    return value < 0 ? 0 : (int)MIN(value, (int64_t)MAX_PIXELS);
}

static void add_escaped(struct str *out, const char *text) {
    for (; *text; text++) {
        if (*text == '&')
            str_add(out, "&amp;");
        else if (*text == '<')
            str_add(out, "&lt;");
        else if (*text == '>')
            str_add(out, "&gt;");
        else if (*text == '"')
            str_add(out, "&quot;");
        else if ((unsigned char)*text >= ' ' || *text == '\n')
            str_add_char(out, *text);
    }
}

static void add_arrow(const struct page_value *arrow, struct str *out) {
    int x1 = pixels(arrow, "x1"), y1 = pixels(arrow, "y1"), x2 = pixels(arrow, "x2"),
        y2 = pixels(arrow, "y2"), bend = 22;
    str_addf(out, "<path class=\"%s%s\" d=\"M%d %dC%d %d %d %d %d %d\" marker-end=\"url(#tip)\"/>",
             page_get_bool(arrow, "is_control") ? "control " : "",
             page_get_bool(arrow, "is_between_devices") ? "between" : "within", x1, y1, x1,
             y1 + bend, x2, y2 - bend, x2, y2 - 3);
}

static void add_box(const struct page_value *box, struct str *out) {
    int x = pixels(box, "x"), y = pixels(box, "y");
    const struct page_value *lines = page_get(box, "lines");
    str_add(out, "<g><title>");
    add_escaped(out, page_get_text(box, "title"));
    str_addf(
        out, "</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\"/>", x,
        y, pixels(box, "width"), pixels(box, "height"), fills[pixels(box, "colour") % N_COLOURS]);
    for (size_t i = 0; i < page_count(lines); i++) {
        str_addf(out, "<text class=\"line%d\" x=\"%d\" y=\"%d\">", (int)MIN(i, (size_t)2), x + 9,
                 y + 18 + (int)i * LINE_HEIGHT);
        add_escaped(out, page_text_at(lines, i));
        str_add(out, "</text>");
    }
    str_add(out, "</g>");
}

static void add_legend(const struct page_value *colours, int n, int top, struct str *out) {
    for (int i = 0; i < n; i++) {
        int y = top + i * LEGEND_LINE;
        str_addf(out, "<rect x=\"16\" y=\"%d\" width=\"14\" height=\"14\" rx=\"3\" fill=\"%s\"/>",
                 y, fills[i % N_COLOURS]);
        str_addf(out, "<text class=\"legend\" x=\"38\" y=\"%d\">", y + 12);
        add_escaped(out, page_text_at(colours, (size_t)i));
        str_add(out, "</text>");
    }
}

static void add_key(int y, struct str *out) {
    str_addf(out,
             "<path class=\"between\" d=\"M16 %dL34 %d\"/><text class=\"legend\" x=\"38\" y=\"%d\">"
             "between devices</text><path class=\"control\" d=\"M166 %dL184 %d\"/>"
             "<text class=\"legend\" x=\"188\" y=\"%d\">order only, no value</text>",
             y, y, y + 4, y, y, y + 4);
}

static const char style[] =
    "<style>svg.graph{font:12px system-ui,sans-serif;color:#5d6b7c}"
    "svg.graph path{fill:none;stroke:currentColor;stroke-width:1.2}"
    "svg.graph path.between{stroke:#d9480f;stroke-width:1.8}"
    "svg.graph path.control{stroke-dasharray:4 3}"
    "svg.graph #tip path{fill:currentColor;stroke:none}"
    "svg.graph rect{stroke:#93a1b1}svg.graph text{fill:#1d2530}"
    "svg.graph .line0{font-weight:600}svg.graph .line2{fill:#4a5665;font-size:11px}"
    "svg.graph .legend{fill:currentColor}</style>"
    "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"6\" refY=\"4\" markerWidth=\"7\" "
    "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>";

void page_svg_write(struct str *out, const struct page_value *drawing, bool is_file,
                    size_t max_bytes) {
    const struct page_value *boxes = page_get(drawing, "boxes"),
                            *arrows = page_get(drawing, "arrows"),
                            *colours = page_get(drawing, "colours");
    int width = MAX(pixels(drawing, "width"), 420), top = pixels(drawing, "height");
    int n_colours = (int)MIN(page_count(colours), (size_t)MAX_LEGEND);
    int height = top + (n_colours + 1) * LEGEND_LINE + 10;
    size_t end = out->len + max_bytes;
    str_addf(out,
             "<svg class=\"graph\" xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
             "height=\"%d\" viewBox=\"0 0 %d %d\">",
             width, height, width, height);
    str_add(out, style);
    if (is_file)
        str_add(out, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>");
    for (size_t i = 0; i < page_count(arrows) && out->len < end; i++)
        add_arrow(page_at(arrows, i), out);
    for (size_t i = 0; i < page_count(boxes) && out->len < end; i++)
        add_box(page_at(boxes, i), out);
    add_legend(colours, n_colours, top, out);
    add_key(top + n_colours * LEGEND_LINE + 8, out);
    str_add(out, "</svg>\n");
}
