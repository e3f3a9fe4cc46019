/* Reads and writes .npy files: a magic, a version, the length of a Python dictionary's text, the
 * text, the elements.
 *
 *   "\x93NUMPY" major minor  length(2 or 4 bytes)  {'descr': '<f4', 'fortran_order':
 *                                              False, 'shape': (2, 3), }  …\n  elements */
#include "common/tensor/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/tensor/text.h"

static const char magic[] = "\x93NUMPY";
enum { MAGIC_BYTES = 6, HEAD_ALIGN = 64 };

static const struct {
    char kind;
    uint8_t size_bytes, dtype;
} npy_types[] = {
    /* clang-format off */
    {'b', 1, DT_BOOL},
    {'i', 1, DT_INT8},   {'i', 2, DT_INT16},   {'i', 4, DT_INT32},   {'i', 8, DT_INT64},
    {'u', 1, DT_UINT8},  {'u', 2, DT_UINT16},  {'u', 4, DT_UINT32},  {'u', 8, DT_UINT64},
    {'f', 2, DT_HALF},   {'f', 4, DT_FLOAT},   {'f', 8, DT_DOUBLE},
    {'c', 8, DT_COMPLEX64}, {'c', 16, DT_COMPLEX128},
    /* clang-format on */
};

/* The entries of the dictionary. */
struct npy_info {
    enum dtype dtype;
    bool is_big_endian, is_fortran;
    int rank;
    int64_t dims[SHAPE_MAX_RANK];
};

/* ---- the dictionary ---- */

static bool take_quoted_word(struct span *in, struct span *ret) {
    const char *quote = text_take(in, "'") ? "'" : text_take(in, "\"") ? "\"" : NULL;
    if (!quote)
        return false;
    *ret = text_take_word(in, "_<>|=");
    return text_take(in, quote);
}

/* '<f4': byte order, kind, size. */
static bool parse_descr(struct span descr, struct npy_info *info) {
    if (descr.len < 3 || !memchr("<>|=", descr.data[0], 4))
        return false;
    struct span digits = {descr.data + 2, descr.len - 2};
    int64_t size;
    if (!text_take_int(&digits, &size) || digits.len > 0)
        return false;
    info->is_big_endian = descr.data[0] == '>';
    for (size_t i = 0; i < ARRAY_LEN(npy_types); i++)
        if (npy_types[i].kind == descr.data[1] && npy_types[i].size_bytes == size) {
            info->dtype = (enum dtype)npy_types[i].dtype;
            return true;
        }
    return false;
}

static bool take_tuple(struct span *in, struct npy_info *info) {
    info->rank = 0;
    if (!text_take(in, "("))
        return false;
    while (!text_take(in, ")")) {
        if (info->rank == SHAPE_MAX_RANK || !text_take_int(in, &info->dims[info->rank++]))
            return false;
        text_take(in, "L"); /* Python 2's long numbers */
        if (!text_take(in, ",") && !(in->len > 0 && *in->data == ')'))
            return false;
    }
    return true;
}

static struct status *parse_dictionary(struct span in, struct npy_info *info) {
    enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };
    int seen = 0;
    struct span key, descr;
    bool is_good = text_take(&in, "{");
    while (is_good && !text_take(&in, "}")) {
        is_good = take_quoted_word(&in, &key) && text_take(&in, ":");
        if (is_good && span_is(key, "descr")) {
            is_good = take_quoted_word(&in, &descr);
            if (is_good && !parse_descr(descr, info))
                return status_invalid("A .npy file of type '%.*s', which has no counterpart",
                                      (int)descr.len, descr.data);
            seen |= HAS_DESCR;
        } else if (is_good && span_is(key, "fortran_order")) {
            info->is_fortran = text_take(&in, "True");
            is_good = info->is_fortran || text_take(&in, "False");
            seen |= HAS_ORDER;
        } else if (is_good && span_is(key, "shape")) {
            is_good = take_tuple(&in, info);
            seen |= HAS_SHAPE;
        } else {
            is_good = false;
        }
        text_take(&in, ",");
    }
    return is_good && seen == HAS_ALL ? NULL
                                      : status_invalid("The header of a .npy file cannot be read");
}

/* Splits the file into header and elements. */
static struct status *find_parts(struct span file, struct span *ret_dictionary,
                                 struct span *ret_elements) {
    if (file.len < MAGIC_BYTES + 4 || memcmp(file.data, magic, MAGIC_BYTES) != 0)
        return status_invalid("Not a .npy file: it does not begin with NumPy's magic");
    int major = (uint8_t)file.data[MAGIC_BYTES];
    if (major < 1 || major > 3)
        return status_invalid("A .npy file of version %d; 1 to 3 can be read", major);
    size_t length_bytes = major == 1 ? 2 : 4, at = MAGIC_BYTES + 2 + length_bytes, length = 0;
    if (file.len < at)
        return status_invalid("A .npy file that ends inside its header");
    for (size_t i = 0; i < length_bytes; i++)
        length |= (size_t)(uint8_t)file.data[MAGIC_BYTES + 2 + i] << (8 * i);
    if (length > file.len - at)
        return status_invalid("A .npy file that ends inside its header");
    *ret_dictionary = (struct span){file.data + at, length};
    *ret_elements = (struct span){file.data + at + length, file.len - at - length};
    return NULL;
}

/* ---- elements ---- */

static void swap_bytes(char *data, size_t n_units, size_t unit_bytes) {
    for (size_t i = 0; i < n_units; i++, data += unit_bytes)
        for (size_t low = 0, high = unit_bytes - 1; low < high; low++, high--) {
            char byte = data[low];
            data[low] = data[high];
            data[high] = byte;
        }
}

/* Visits the target in row-major order while the source advances by Fortran's strides. */
static void copy_from_fortran(const struct npy_info *info, size_t element_bytes, const char *from,
                              int64_t n_elements, char *to) {
    int64_t strides[SHAPE_MAX_RANK], index[SHAPE_MAX_RANK] = {0}, stride = 1, at = 0;
    for (int i = 0; i < info->rank; i++) {
        strides[i] = stride;
        stride *= info->dims[i];
    }
    for (int64_t n = 0; n < n_elements; n++) {
        memcpy(to + (size_t)n * element_bytes, from + (size_t)at * element_bytes, element_bytes);
        for (int i = info->rank - 1; i >= 0; i--) {
            at += strides[i];
            if (++index[i] < info->dims[i])
                break;
            at -= strides[i] * info->dims[i];
            index[i] = 0;
        }
    }
}

struct status *npy_parse(struct span file, struct allocator *allocator, struct tensor *ret) {
    struct span dictionary = {NULL, 0}, elements = {NULL, 0};
    struct npy_info info = {0};
    TRY(find_parts(file, &dictionary, &elements));
    TRY(parse_dictionary(dictionary, &info));
    int64_t n_elements;
    struct shape shape = {info.rank, info.dims};
    size_t element_bytes = dtype_size(info.dtype);
    TRY(shape_n_elements(shape, &n_elements));
    if ((uint64_t)n_elements > elements.len / element_bytes)
        return status_invalid("A .npy file with %zu bytes of elements, too few for %lld of type %s",
                              elements.len, (long long)n_elements, dtype_name(info.dtype));
    TRY(tensor_new(allocator, info.dtype, shape, ret));
    char *data = tensor_data(ret);
    if (info.is_fortran && info.rank > 1)
        copy_from_fortran(&info, element_bytes, elements.data, n_elements, data);
    else if (n_elements > 0)
        memcpy(data, elements.data, (size_t)n_elements * element_bytes);
    size_t unit_bytes = dtype_in(info.dtype, DTYPES_COMPLEX) ? element_bytes / 2 : element_bytes;
    if (info.is_big_endian)
        swap_bytes(data, (size_t)n_elements * (element_bytes / unit_bytes), unit_bytes);
    for (int64_t i = 0; info.dtype == DT_BOOL && i < n_elements; i++)
        data[i] = data[i] != 0;
    return NULL;
}

struct status *npy_head(const struct tensor *t, struct str *out) {
    size_t row = 0;
    while (row < ARRAY_LEN(npy_types) && npy_types[row].dtype != t->dtype)
        row++;
    if (row == ARRAY_LEN(npy_types))
        return status_invalid(
            "Tensors of type %s cannot be written as .npy: NumPy has no such type",
            dtype_name((enum dtype)t->dtype));
    struct str text = STR_INIT;
    str_addf(&text, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
             npy_types[row].size_bytes == 1 ? '|' : '<', npy_types[row].kind,
             npy_types[row].size_bytes);
    for (int i = 0; i < t->rank; i++)
        str_addf(&text, "%s%lld", i > 0 ? ", " : "", (long long)tensor_dim(t, i));
    str_add(&text, t->rank == 1 ? ",), }" : "), }");
    while ((MAGIC_BYTES + 4 + text.len + 1) % HEAD_ALIGN != 0)
        str_add_char(&text, ' ');
    str_add_char(&text, '\n');
    /* 254 sizes of 20 digits fit into 64 KiB */
    const char head[4] = {1, 0, (char)(text.len & 0xff), (char)(text.len >> 8)};
    str_add_bytes(out, magic, MAGIC_BYTES);
    str_add_bytes(out, head, sizeof(head));
    str_add_bytes(out, text.data, text.len);
    str_fini(&text);
    return NULL;
}

/* ---- files ---- */

static COLD struct status *system_failed(const char *what, const char *path, int error) {
    enum status_code code = error == ENOENT   ? STATUS_NOT_FOUND
                            : error == EACCES ? STATUS_PERMISSION_DENIED
                                              : STATUS_UNKNOWN;
    return status_new(code, "Cannot %s %s: %s", what, path, strerror(error));
}

struct status *npy_read(const char *path, struct allocator *allocator, struct tensor *ret) {
    struct str bytes = STR_INIT;
    struct status *st = NULL;
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (!file)
        return system_failed("open", path, errno);
    if (fstat(fileno(file), &info) == 0 && info.st_size > 0)
        str_reserve(&bytes, (size_t)info.st_size);
    char block[64 * 1024];
    size_t n;
    while ((n = fread(block, 1, sizeof(block), file)) > 0)
        str_add_bytes(&bytes, block, n);
    if (ferror(file))
        st = system_failed("read", path, errno);
    if (!st)
        st = status_prefix_take(
            npy_parse((struct span){str_text(&bytes), bytes.len}, allocator, ret), "%s: ", path);
    fclose(file);
    str_fini(&bytes);
    return st;
}

struct status *npy_write(const char *path, const struct tensor *t) {
    struct str head = STR_INIT;
    TRY(npy_head(t, &head));
    FILE *file = fopen(path, "wb");
    struct status *st = file ? NULL : system_failed("create", path, errno);
    if (file) {
        bool is_good = fwrite(head.data, 1, head.len, file) == head.len;
        size_t size = tensor_size_bytes(t);
        is_good = is_good && (size == 0 || fwrite(tensor_cdata(t), 1, size, file) == size);
        int error = errno;
        if (fclose(file) != 0 && is_good) {
            is_good = false;
            error = errno;
        }
        if (!is_good)
            st = system_failed("write", path, error);
    }
    str_fini(&head);
    return st;
}
