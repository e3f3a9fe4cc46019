/* Derivatives of tables: none. */
#include "common/gradients/gradient.h"

extern const struct gradient_list lookup_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("HashTableV2"),
    NO_GRADIENT("AnonymousHashTable"),
    NO_GRADIENT("MutableHashTableV2"),
    NO_GRADIENT("AnonymousMutableHashTable"),
    NO_GRADIENT("MutableHashTableOfTensorsV2"),
    NO_GRADIENT("AnonymousMutableHashTableOfTensors"),
    NO_GRADIENT("MutableDenseHashTableV2"),
    NO_GRADIENT("AnonymousMutableDenseHashTable"),
    NO_GRADIENT("LookupTableFindV2"),
    NO_GRADIENT("LookupTableSizeV2"),
    NO_GRADIENT("LookupTableExportV2"),
    NO_GRADIENT("InitializeTableV2"),
    NO_GRADIENT("InitializeTableFromDataset"),
    NO_GRADIENT("InitializeTableFromTextFileV2"),
    NO_GRADIENT("LookupTableInsertV2"),
    NO_GRADIENT("LookupTableImportV2"),
    NO_GRADIENT("LookupTableRemoveV2"),
};
// clang-format on

const struct gradient_list lookup_gradients = {rows, ARRAY_LEN(rows)};
