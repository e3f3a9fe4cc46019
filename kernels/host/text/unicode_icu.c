/* Decodes texts in any encoding: UTF-8 by our own code, others by ICU's converters. ICU is large
 * and few programs need it, so it is loaded at first use. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unicode/ucnv.h>
#include <unicode/uscript.h>

#include "kernels/host/text/string_internal.h"
#include "kernels/host/text/unicode_internal.h"
#include "kernels/host/text/utf8.h"

/* The names of ICU's functions end with its version, which macros in its headers hide. */
#define ICU_NAME_(name) #name
#define ICU_NAME(name) ICU_NAME_(name)

static struct {
    UConverter *(*open)(const char *name, UErrorCode *error);
    void (*close)(UConverter *converter);
    UChar32 (*next)(UConverter *converter, const char **source, const char *end, UErrorCode *error);
    void (*set_callback)(UConverter *converter, UConverterToUCallback callback, const void *context,
                         UConverterToUCallback *old, const void **old_context, UErrorCode *error);
    UConverterToUCallback substitute;
    UScriptCode (*script)(UChar32 code, UErrorCode *error);
} icu;
static bool has_icu;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
    void *handle = dlopen("libicuuc.so." U_ICU_VERSION_SHORT, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return;
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{ICU_NAME(ucnv_open), &icu.open},
                   {ICU_NAME(ucnv_close), &icu.close},
                   {ICU_NAME(ucnv_getNextUChar), &icu.next},
                   {ICU_NAME(ucnv_setToUCallBack), &icu.set_callback},
                   {ICU_NAME(UCNV_TO_U_CALLBACK_SUBSTITUTE), &icu.substitute},
                   {ICU_NAME(uscript_getScript), &icu.script}};
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        void *symbol = dlsym(handle, symbols[i].name);
        if (!symbol)
            return;
        memcpy(symbols[i].to, &symbol, sizeof(symbol));
    }
    has_icu = true;
}

static struct status *need_icu(void) {
    pthread_once(&once, load);
    return has_icu ? NULL
                   : status_unimplemented("The ICU library (libicuuc.so." U_ICU_VERSION_SHORT
                                          ") is not installed");
}

/* ---- decoders ---- */

struct unicode_decoder {
    UConverter *converter; /* NULL: UTF-8 */
    struct span rest;
    bool is_wrong;
};

static void on_ill_formed(const void *context, UConverterToUnicodeArgs *args, const char *units,
                          int32_t n_units, UConverterCallbackReason reason, UErrorCode *error) {
    if (reason == UCNV_UNASSIGNED || reason == UCNV_ILLEGAL || reason == UCNV_IRREGULAR)
        *(bool *)(uintptr_t)context = true;
    icu.substitute(NULL, args, units, n_units, reason, error);
}

static bool is_utf8(struct span encoding) {
    return encoding.len == 5 && strncasecmp(encoding.data, "UTF-8", 5) == 0;
}

struct status *unicode_decoder_new(struct span encoding, struct unicode_decoder **ret) {
    struct unicode_decoder *decoder = xcalloc(1, sizeof(*decoder));
    if (!is_utf8(encoding)) {
        UErrorCode error = U_ZERO_ERROR;
        struct status *st = need_icu();
        if (!st) {
            char *name = xstrndup(encoding.data, encoding.len);
            decoder->converter = icu.open(name, &error);
            free(name);
        }
        if (decoder->converter)
            icu.set_callback(decoder->converter, on_ill_formed, &decoder->is_wrong, NULL, NULL,
                             &error);
        if (!st && (!decoder->converter || U_FAILURE(error)))
            st = status_invalid("Could not create converter for input encoding: %.*s",
                                (int)encoding.len, encoding.data);
        if (st) {
            unicode_decoder_free(decoder);
            return st;
        }
    }
    *ret = decoder;
    return NULL;
}

void unicode_decoder_free(struct unicode_decoder *decoder) {
    if (decoder && decoder->converter)
        icu.close(decoder->converter);
    free(decoder);
}

/* As in TensorFlow, a converter that has read a byte order mark uses it for later texts as well. */
void unicode_decoder_start(struct unicode_decoder *decoder, struct span text) {
    decoder->rest = text;
}

bool unicode_decoder_next(struct unicode_decoder *decoder, int32_t *ret_code, size_t *ret_len,
                          bool *ret_is_wrong) {
    struct span *rest = &decoder->rest;
    if (rest->len == 0)
        return false;
    if (decoder->converter) {
        const char *source = rest->data, *end = rest->data + rest->len;
        UErrorCode error = U_ZERO_ERROR;
        decoder->is_wrong = false;
        *ret_code = icu.next(decoder->converter, &source, end, &error);
        if (U_FAILURE(error)) /* only byte order marks were left */
            source = end;
        *ret_len = (size_t)(source - rest->data);
        *ret_is_wrong = decoder->is_wrong;
    } else {
        *ret_code = (int32_t)utf8_decode(*rest, ret_len);
        *ret_is_wrong = *ret_code == UNICODE_REPLACEMENT &&
                        !(*ret_len == 3 && memcmp(rest->data, "\xef\xbf\xbd", 3) == 0);
    }
    rest->data += *ret_len;
    rest->len -= *ret_len;
    return true;
}

/* ---- scripts ---- */

struct status *unicode_script_load(void) {
    return need_icu();
}

int32_t unicode_script_of(int32_t code) {
    UErrorCode error = U_ZERO_ERROR;
    int32_t script = icu.script(code, &error);
    return U_FAILURE(error) ? -1 : script;
}
