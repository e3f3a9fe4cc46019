/* Writes classes of characters for PCRE2 (kernels/host/text/regex_class.h). */
#include "kernels/host/text/regex_class.h"

#include <string.h>

enum { MAX_CHAR = 0x10ffff };

/* Beyond ASCII, these two fold to s and k when case is ignored. */
enum { LONG_S = 0x17f, KELVIN = 0x212a };

// clang-format off
static const struct ascii_class classes[] = {
    {"alnum", "09AZaz", 3},  {"alpha", "AZaz", 2},       {"ascii", "\0\x7f", 1},
    {"blank", "\t\t  ", 2},  {"cntrl", "\0\x1f\x7f\x7f", 2},
    {"digit", "09", 1},      {"graph", "!~", 1},         {"lower", "az", 1},
    {"print", " ~", 1},      {"punct", "!/:@[`{~", 4},
    {"space", "\t\r  ", 2},  {"upper", "AZ", 1},         {"word", "09AZ__az", 4},
    {"xdigit", "09AFaf", 3},
};
/* The scripts of the Unicode standard, by the names that patterns use. */
static const char *const scripts[] = {
    "Adlam", "Ahom", "Anatolian_Hieroglyphs", "Arabic", "Armenian", "Avestan", "Balinese", "Bamum",
    "Bassa_Vah", "Batak", "Bengali",
    "Bhaiksuki", "Bopomofo", "Brahmi", "Braille", "Buginese", "Buhid", "Canadian_Aboriginal",
    "Carian", "Caucasian_Albanian", "Chakma",
    "Cham", "Cherokee", "Chorasmian", "Common", "Coptic", "Cuneiform", "Cypriot", "Cypro_Minoan",
    "Cyrillic", "Deseret", "Devanagari",
    "Dives_Akuru", "Dogra", "Duployan", "Egyptian_Hieroglyphs", "Elbasan", "Elymaic", "Ethiopic",
    "Georgian", "Glagolitic", "Gothic",
    "Grantha", "Greek", "Gujarati", "Gunjala_Gondi", "Gurmukhi", "Han", "Hangul", "Hanifi_Rohingya",
    "Hanunoo", "Hatran", "Hebrew",
    "Hiragana", "Imperial_Aramaic", "Inherited", "Inscriptional_Pahlavi", "Inscriptional_Parthian",
    "Javanese", "Kaithi", "Kannada",
    "Katakana", "Kayah_Li", "Kharoshthi", "Khitan_Small_Script", "Khmer", "Khojki", "Khudawadi",
    "Lao", "Latin", "Lepcha", "Limbu",
    "Linear_A", "Linear_B", "Lisu", "Lycian", "Lydian", "Mahajani", "Makasar", "Malayalam",
    "Mandaic", "Manichaean", "Marchen",
    "Masaram_Gondi", "Medefaidrin", "Meetei_Mayek", "Mende_Kikakui", "Meroitic_Cursive",
    "Meroitic_Hieroglyphs", "Miao", "Modi",
    "Mongolian", "Mro", "Multani", "Myanmar", "Nabataean", "Nandinagari", "New_Tai_Lue", "Newa",
    "Nko", "Nushu",
    "Nyiakeng_Puachue_Hmong", "Ogham", "Ol_Chiki", "Old_Hungarian", "Old_Italic",
    "Old_North_Arabian", "Old_Permic", "Old_Persian",
    "Old_Sogdian", "Old_South_Arabian", "Old_Turkic", "Old_Uyghur", "Oriya", "Osage", "Osmanya",
    "Pahawh_Hmong", "Palmyrene",
    "Pau_Cin_Hau", "Phags_Pa", "Phoenician", "Psalter_Pahlavi", "Rejang", "Runic", "Samaritan",
    "Saurashtra", "Sharada", "Shavian",
    "Siddham", "SignWriting", "Sinhala", "Sogdian", "Sora_Sompeng", "Soyombo", "Sundanese",
    "Syloti_Nagri", "Syriac", "Tagalog",
    "Tagbanwa", "Tai_Le", "Tai_Tham", "Tai_Viet", "Takri", "Tamil", "Tangsa", "Tangut", "Telugu",
    "Thaana", "Thai", "Tibetan",
    "Tifinagh", "Tirhuta", "Toto", "Ugaritic", "Vai", "Vithkuqi", "Wancho", "Warang_Citi", "Yezidi",
    "Yi", "Zanabazar_Square",
};
// clang-format on
static const struct ascii_class perl_space = {"s", "\t\n\f\r  ", 3};

static bool is_name(struct span name, const char *text) {
    return name.len == strlen(text) && memcmp(name.data, text, name.len) == 0;
}

const struct ascii_class *ascii_class_find(struct span name) {
    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        if (is_name(name, classes[i].name))
            return &classes[i];
    return NULL;
}

const struct ascii_class *ascii_class_of_escape(char letter) {
    switch (letter | 0x20) {
    case 'd':
        return ascii_class_find((struct span){"digit", 5});
    case 'w':
        return ascii_class_find((struct span){"word", 4});
    case 's':
        return &perl_space;
    default:
        return NULL;
    }
}

void regex_add_range(struct str *out, uint32_t low, uint32_t high) {
    if (low > high)
        return;
    str_addf(out, "\\x{%x}", low);
    if (high > low)
        str_addf(out, "-\\x{%x}", high);
}

void ascii_class_add(const struct ascii_class *class, bool is_negated, bool ignores_case,
                     struct str *out) {
    bool is_one_case = is_name((struct span){class->name, strlen(class->name)}, "lower") ||
                       strcmp(class->name, "upper") == 0;
    if (is_negated && ignores_case && is_one_case)
        class = ascii_class_find((struct span){"alpha", 5});
    uint32_t next = 0;
    bool has_k = false;
    for (int i = 0; i < class->n_ranges; i++) {
        uint32_t low = (unsigned char)class->ranges[2 * i],
                 high = (unsigned char)class->ranges[2 * i + 1];
        has_k |= low <= 'k' && high >= 'k';
        if (is_negated && low > next)
            regex_add_range(out, next, low - 1);
        else if (!is_negated)
            regex_add_range(out, low, high);
        next = high + 1;
    }
    if (!is_negated)
        return;
    if (ignores_case && has_k) { /* all classes with k have s as well */
        regex_add_range(out, next, LONG_S - 1);
        regex_add_range(out, LONG_S + 1, KELVIN - 1);
        next = KELVIN + 1;
    }
    regex_add_range(out, next, MAX_CHAR);
}

static bool is_category(struct span name) {
    static const char *const of_letter[] = {"Ccfos",    "Lmotlu", "Mcen", "Ndlo",
                                            "Pcdefios", "Sckmo",  "Zlps"};
    for (size_t i = 0; i < ARRAY_LEN(of_letter); i++)
        if (name.data[0] == of_letter[i][0])
            return name.len == 1 ||
                   (name.len == 2 && strchr(of_letter[i] + 1, name.data[1]) && name.data[1]);
    return false;
}

int unicode_class_add(struct span name, bool is_negated, bool ignores_case, struct str *out) {
    char sign = is_negated ? 'P' : 'p';
    if (name.len == 0)
        return 0;
    if (is_name(name, "Any")) {
        str_addf(out, "\\%c{Any}", sign);
        return 1;
    }
    /* unlike RE2's, PCRE2's class has the unassigned characters as well */
    if (is_name(name, "C")) {
        if (is_negated)
            return -1;
        str_add(out, "\\p{Cc}\\p{Cf}\\p{Co}\\p{Cs}");
        return 1;
    }
    if (is_category(name)) {
        bool is_cased = name.len == 2 && name.data[0] == 'L' && strchr("ult", name.data[1]);
        if (is_cased && ignores_case)
            str_addf(out, "\\%c{L&}", sign);
        else
            str_addf(out, "\\%c{%.*s}", sign, (int)name.len, name.data);
        return 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        if (is_name(name, scripts[i])) {
            str_addf(out, "\\%c{sc:%s}", sign, scripts[i]);
            return 1;
        }
    }
    return 0;
}
