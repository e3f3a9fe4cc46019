/* What pages write: JSON of any bytes, HTML of any JSON, and the limits of both. */
#include "rpc/daemon/page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "rpc/daemon/flag_page.h"
#include "rpc/daemon/page_html.h"

static const struct page_link links[] = {{"/", "the index"}, {"/statusz", "the status"}};

static void html_of(struct str *out, const char *json, size_t len) {
    str_clear(out);
    page_write_html(out,
                    &(struct page_frame){.program = "tf-worker",
                                         .name = "/job:<b>/task:0",
                                         .path = "/statusz",
                                         .summary = "what it \"does\"",
                                         .links = links,
                                         .n_links = ARRAY_LEN(links)},
                    (struct span){json, len});
}

static void assert_html(const char *json, const char *wanted) {
    struct str out = STR_INIT;
    html_of(&out, json, strlen(json));
    if (!strstr(str_text(&out), wanted))
        fail_msg("%s: no '%s' in %s", json, wanted, strstr(str_text(&out), "<main>"));
    str_fini(&out);
}

static void a_page_is_one_json_value(void **state) {
    struct str out = STR_INIT;
    page_open(&out, NULL, '{');
    page_text(&out, "text", "a\"b\\c\n");
    page_text(&out, "none", NULL);
    page_open(&out, "rows", '[');
    for (int i = 0; i < 2; i++) {
        page_open(&out, NULL, '{');
        page_int(&out, "i", -i);
        page_close(&out, '}');
    }
    page_more(&out, 0);
    page_more(&out, 7);
    page_close(&out, ']');
    page_open(&out, "empty", '[');
    page_close(&out, ']');
    page_real(&out, "half", 0.5);
    page_real(&out, "nan", NAN);
    page_bool(&out, "yes", true);
    page_id(&out, "id", 0xabc);
    page_key(&out, "other");
    str_add(&out, "[1]");
    page_int(&out, "last", 9);
    page_close(&out, '}');
    assert_string_equal(str_text(&out),
                        "{\"text\":\"a\\\"b\\\\c\\n\",\"none\":null,\"rows\":[{\"i\":0},{\"i\":-1},"
                        "{\"more\":7}],\"empty\":[],\"half\":0.5,\"nan\":null,\"yes\":true,"
                        "\"id\":\"0000000000000abc\",\"other\":[1],\"last\":9}");
    str_fini(&out);
}

static void assert_error(struct status *error_take, bool is_operator, const char *wanted) {
    struct str out = STR_INIT;
    page_open(&out, NULL, '{');
    page_error(&out, "why", error_take, is_operator);
    page_int(&out, "last", 1);
    page_close(&out, '}');
    assert_string_equal(str_text(&out), wanted);
    str_fini(&out);
    status_unref(error_take);
}

/* Only operators see messages, which carry values. Everybody sees which node failed. */
static void an_error_shows_values_to_operators_only(void **state) {
    static const char message[] = "secret [[{{node no}}]]\n\t [[{{node a/b}}]]";
    assert_error(status_invalid("%s", message), false,
                 "{\"why_code\":\"INVALID_ARGUMENT\",\"why_node\":\"a/b\",\"last\":1}");
    assert_error(status_invalid("%s", message), true,
                 "{\"why_code\":\"INVALID_ARGUMENT\",\"why_node\":\"a/b\",\"why\":"
                 "\"secret [[{{node no}}]]\\n\\t [[{{node a/b}}]]\",\"last\":1}");
    assert_error(status_not_found("[[{{node secret}}]] is no key"), false,
                 "{\"why_code\":\"NOT_FOUND\",\"why_node\":null,\"last\":1}");
    assert_error(status_not_found("}}]]"), false,
                 "{\"why_code\":\"NOT_FOUND\",\"why_node\":null,\"last\":1}");
}

/* Parses the string that page_name writes of some bytes. */
static json_t *written(const char *bytes, size_t len, bool is_name) {
    struct str out = STR_INIT, text = STR_INIT;
    json_error_t error;
    str_add_bytes(&text, bytes, len);
    if (is_name)
        page_name(&out, NULL, str_text(&text));
    else
        page_span(&out, NULL, (struct span){text.data, text.len});
    json_t *value = json_loadb(out.data, out.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    assert_non_null(value);
    str_fini(&out);
    str_fini(&text);
    return value;
}

static void text_may_be_any_bytes(void **state) {
    for (int c = 0; c < 256; c++) {
        char bytes[3] = {'a', (char)c, 'b'};
        json_t *value = written(bytes, 3, false);
        const char *text = json_string_value(value);
        assert_int_equal(text[0], 'a');
        assert_int_equal(text[json_string_length(value) - 1], 'b');
        if (c >= 0x80)
            assert_memory_equal(text + 1, "\xef\xbf\xbd", 3);
        json_decref(value);
    }
}

static void long_names_are_cut_between_characters(void **state) {
    char name[2 * PAGE_MAX_NAME_BYTES + 2];
    for (size_t i = 0; i + 1 < sizeof(name); i += 2)
        memcpy(name + i, "é", 2);
    name[0] = 'x'; /* the limit is in the middle of a character; so is this byte */
    name[1] = 'y';
    memmove(name + 1, name + 2, sizeof(name) - 2);
    name[sizeof(name) - 2] = '\0';
    json_t *value = written(name, strlen(name), true);
    assert_int_equal(json_string_length(value), PAGE_MAX_NAME_BYTES - 1 + strlen("…"));
    assert_null(strstr(json_string_value(value), "\xef\xbf\xbd"));
    json_decref(value);
}

static void queries_are_read(void **state) {
    assert_int_equal(page_query_int("a=1&limit=20&b", "limit", 1, 100, 7), 20);
    assert_int_equal(page_query_int("limit=20x", "limit", 1, 100, 7), 7);
    assert_int_equal(page_query_int("limit=200", "limit", 1, 100, 7), 7);
    assert_int_equal(page_query_int("limit=", "limit", 1, 100, 7), 7);
    assert_int_equal(page_query_int("xlimit=9", "limit", 1, 100, 7), 7);
    assert_true(page_query_is("x&format=json&y", "format", "json"));
    assert_false(page_query_is("format=jsonp", "format", "json"));
    assert_true(page_query_wants_json("format=html"));
    assert_false(page_query_wants_json("format=text"));
}

static void hostile_names_are_escaped(void **state) {
    static const char *const names[] = {"<script>alert(1)</script>",
                                        "\" onload=\"x",
                                        "' x='",
                                        "</style><script>",
                                        "&lt;",
                                        "\x80\xff",
                                        "a\x01z"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct str json = STR_INIT, out = STR_INIT;
        page_open(&json, NULL, '{');
        page_name(&json, "page", names[i]);
        page_open(&json, "rows", '[');
        page_open(&json, NULL, '{');
        page_name(&json, "name", names[i]);
        page_close(&json, '}');
        page_close(&json, ']');
        page_close(&json, '}');
        html_of(&out, json.data, json.len);
        assert_null(strstr(str_text(&out), "<script"));
        assert_null(strstr(str_text(&out), "onload=\""));
        assert_null(strstr(str_text(&out), "x='"));
        for (size_t k = 0; k < out.len;) {
            size_t n = utf8_well_formed_len(out.data + k, out.len - k);
            assert_true(n > 0);
            assert_true((unsigned char)out.data[k] >= 0x20 || out.data[k] == '\n');
            k += n;
        }
        str_fini(&json);
        str_fini(&out);
    }
    assert_html("{\"x\":\"<&>\\\"'\"}", "&lt;&amp;&gt;&quot;&#39;");
    assert_html("{\"<i>\":1}", "&lt;i&gt;");
    assert_html("{}", "/job:&lt;b&gt;/task:0");
    assert_html("{}", "what it &quot;does&quot;");
}

static void a_drawing_is_drawn_and_escaped(void **state) {
    static const char drawing[] =
        "{\"drawing\":{\"width\":9,\"height\":9,\"colours\":[\"<i>\"],\"boxes\":[{\"x\":1,\"y\":2,"
        "\"width\":3,\"height\":4,\"colour\":99,\"title\":\"<b>\\\"&\",\"lines\":[\"<u>\"]}],"
        "\"arrows\":[{\"x1\":-5,\"y1\":1,\"x2\":1e9,\"y2\":7,\"is_control\":true}]}}";
    assert_html(drawing, "<title>&lt;b&gt;&quot;&amp;</title><rect x=\"1\" y=\"2\"");
    assert_html(drawing, ">&lt;u&gt;</text>");
    assert_html(drawing, ">&lt;i&gt;</text>");
    assert_html(drawing, "<path class=\"control within\" d=\"M0 1C");
    assert_html("{\"drawing\":{\"boxes\":7}}", "<dt>boxes<dd>");
    assert_html("{\"download\":\"/nowhere?a=1\"}", "<dd>/nowhere?a=1");
}

static void numbers_have_the_units_of_their_keys(void **state) {
    assert_html("{\"memory_in_use_bytes\":5242880}", "<dt>memory in use<dd>");
    assert_html("{\"memory_in_use_bytes\":5242880}", ">5.0 MiB<");
    assert_html("{\"memory_in_use_bytes\":5242880}", "title=\"5242880\"");
    assert_html("{\"x_bytes\":7}", ">7 B<");
    assert_html("{\"rtt_us\":1500}", ">1.5 ms<");
    assert_html("{\"offset_us\":-3}", ">−3 µs<");
    assert_html("{\"uptime_seconds\":7325}", ">2 h 2 min<");
    assert_html("{\"uptime_seconds\":200000}", ">2 d 7 h<");
    assert_html("{\"uptime_seconds\":125}", ">2 min 5 s<");
    assert_html("{\"seconds\":1.5}", "<dt>time<dd><span class=n title=\"1.5\">1.5 s<");
    assert_html("{\"saved_unix_seconds\":0}", "1970-01-01 00:00:00 UTC");
    assert_html("{\"resets_per_s\":5}", "<dt>resets per s<dd><span class=n>5<");
    assert_html("{\"flops_per_second\":1.78e10}", "<dt>flops per second<dd>");
    assert_html("{\"flops_per_second\":1.78e10}", ">17.8 G<");
    assert_html("{\"bytes_per_second\":2097152}", "<dt>bytes per second<dd>");
    assert_html("{\"bytes_per_second\":2097152}", ">2.0 MiB/s<");
    assert_html("{\"received_bytes_per_second\":2097152}", ">2.0 MiB/s<");
    assert_html("{\"rows\":[]}", ">none<");
    assert_html("{\"n_peers\":5}", "<dt>peers<dd><span class=n>5<");
    assert_html("{\"on\":true,\"off\":false}", "<dd>yes<dt>off<dd>no");
}

static void what_is_in_use_is_drawn_beside_its_limit(void **state) {
    assert_html("{\"in_use\":1,\"limit\":4}", "<meter max=1 value=0.2500 ");
    assert_html("{\"memory_in_use_bytes\":9,\"memory_limit_bytes\":3}",
                "<meter max=1 value=1.0000");
}

static void rows_are_tables(void **state) {
    assert_html("[{\"a\":1,\"none\":\"\"},{\"a\":2,\"b\":\"x\"}]",
                "<thead><tr><th>a<th>b<tbody><tr><td><span class=n>1</span><td><tr><td>"
                "<span class=n>2</span><td>x</table>");
    assert_html("[{\"a\":\"\",\"b\":1},{\"a\":2,\"b\":3}]", "<thead><tr><th>a<th>b<tbody>");
    assert_html("{\"limits\":{\"one\":{\"max\":1},\"two\":{\"max\":2}}}", "<th scope=row>two<td>");
    assert_html("{\"rows\":[{\"a\":1},{\"more\":12}]}", "and 12 more");
    assert_html("{\"outer\":{\"inner\":[{\"a\":1}]}}", "<h3>inner</h3>");
}

static void only_own_pages_are_linked(void **state) {
    assert_html("{\"page\":\"/statusz\"}", "<dd><a href=\"/statusz\">/statusz</a>");
    assert_html("{\"page\":\"//evil.example\"}", "<dd>//evil.example");
    assert_html("{\"other\":\"/statusz\"}", "<dd>/statusz");
}

static void what_is_no_json_is_shown_as_text(void **state) {
    assert_html("no <json>", "<pre>no &lt;json&gt;</pre>");
    assert_html("", "<pre></pre>");
    assert_html("{\"a\":\"\xff\"}", "<pre>");
}

static void a_page_has_a_limit(void **state) {
    struct str json = STR_INIT, out = STR_INIT;
    page_open(&json, NULL, '[');
    for (int i = 0; i < 3 * PAGE_HTML_MAX_ROWS; i++) {
        page_open(&json, NULL, '{');
        page_int(&json, "i", i);
        page_close(&json, '}');
    }
    page_close(&json, ']');
    html_of(&out, json.data, json.len);
    assert_non_null(strstr(str_text(&out), "and 1000 more"));
    str_clear(&json);
    page_open(&json, NULL, '{');
    for (int table = 0; table < 7; table++) {
        char name[20];
        snprintf(name, sizeof(name), "rows_%d", table);
        page_open(&json, name, '[');
        for (int i = 0; i < PAGE_HTML_MAX_ROWS; i++) {
            page_open(&json, NULL, '{');
            for (int k = 0; k < 4; k++) {
                char key[2] = {(char)('a' + k), '\0'};
                page_text(&json, key,
                          "<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<");
            }
            page_close(&json, '}');
        }
        page_close(&json, ']');
    }
    page_close(&json, '}');
    html_of(&out, json.data, json.len);
    assert_true(json.len <= PAGE_HTML_MAX_JSON_BYTES && out.len <= PAGE_HTML_MAX_BYTES);
    assert_non_null(strstr(str_text(&out), "too long to be shown whole"));
    assert_string_equal(str_text(&out) + out.len - 15, "</body></html>\n");
    str_fini(&json);
    str_fini(&out);
}

static void what_is_too_long_is_not_drawn(void **state) {
    struct str json = STR_INIT, out = STR_INIT;
    page_open(&json, NULL, '[');
    while (json.len <= PAGE_HTML_MAX_JSON_BYTES)
        page_text(&json, NULL, "many words");
    page_close(&json, ']');
    html_of(&out, json.data, json.len);
    assert_true(out.len < 10000);
    assert_non_null(strstr(str_text(&out), "1.0 MiB of <a href=\"?format=json\">JSON</a>"));
    assert_int_equal(page_html_rows("a=1&format=html", 10000), PAGE_HTML_MAX_ROWS);
    assert_int_equal(page_html_rows("format=json", 10000), 10000);
    assert_int_equal(page_html_rows("format=html", 10), 10);
    str_fini(&json);
    str_fini(&out);
}

static void nesting_has_a_limit(void **state) {
    struct str json = STR_INIT, out = STR_INIT;
    for (int i = 0; i < 1000; i++)
        str_add(&json, i % 2 ? "[" : "{\"a\":");
    for (int i = 1000; i-- > 0;)
        str_add(&json, i % 2 ? "]" : "}");
    html_of(&out, json.data, json.len);
    assert_true(out.len < 10000);
    assert_non_null(strstr(str_text(&out), "…"));
    str_fini(&json);
    str_fini(&out);
}

struct flags {
    const char *etcd, *key, *listen;
};

#define ROW(name_, field, default_)                                                  \
    .name = (name_), .kind = OPTION_STRING, .offset = offsetof(struct flags, field), \
    .default_text = (default_), .value_name = "X", .help = "help"

static void flags_are_shown_without_secrets(void **state) {
    static const struct option_row rows[] = {{ROW("etcd", etcd, NULL)},
                                             {ROW("tls-key", key, NULL), .is_secret = true},
                                             {ROW("listen", listen, "a://b")}};
    static const struct options_spec spec = {
        .program = "p", .section = "p", .summary = "s", .rows = rows, .n_rows = ARRAY_LEN(rows)};
    static char *const argv[] = {"p", "--etcd", "http://u:p@a:1,https://u:q@x@b:2/y@z,http://c:3",
                                 "--tls-key=/secret", NULL};
    struct flags flags = {NULL, NULL, NULL};
    struct options options;
    struct str out = STR_INIT;
    int code;
    options_init(&options, &spec, &flags);
    assert_int_equal(options_load(&options, 4, argv, stdout, stderr, &code), OPTIONS_GO_ON);
    flag_page_write(&options, &out);
    assert_string_equal(
        str_text(&out),
        "{\"set\":[{\"flag\":\"etcd\",\"value\":\"http://(hidden)@a:1,https://(hidden)@b:2/y@z,"
        "http://c:3\",\"origin\":\"flag\",\"about\":\"help\"},{\"flag\":\"tls-key\",\"value\":"
        "\"(hidden)\",\"origin\":\"flag\",\"about\":\"help\"}],\"defaults\":[{\"flag\":\"listen\","
        "\"value\":\"a://b\",\"origin\":\"default\",\"about\":\"help\"}]}\n");
    options_fini(&options);
    str_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_one_json_value),
        cmocka_unit_test(an_error_shows_values_to_operators_only),
        cmocka_unit_test(text_may_be_any_bytes),
        cmocka_unit_test(long_names_are_cut_between_characters),
        cmocka_unit_test(queries_are_read),
        cmocka_unit_test(hostile_names_are_escaped),
        cmocka_unit_test(numbers_have_the_units_of_their_keys),
        cmocka_unit_test(what_is_in_use_is_drawn_beside_its_limit),
        cmocka_unit_test(rows_are_tables),
        cmocka_unit_test(only_own_pages_are_linked),
        cmocka_unit_test(what_is_no_json_is_shown_as_text),
        cmocka_unit_test(a_page_has_a_limit),
        cmocka_unit_test(what_is_too_long_is_not_drawn),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(a_drawing_is_drawn_and_escaped),
        cmocka_unit_test(flags_are_shown_without_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
