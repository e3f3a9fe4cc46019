"""Tables that are filled from datasets."""

import itertools

import numpy as np
from programs import WORKER0, Run, tf, tf1

D = tf.data.Dataset
R = tf.raw_ops
numbers = itertools.count()


def filled(make, keys=tf.string, values=tf.int64, asked=("a", "b", "z"), preset=-1, mutable=False):
    def build():
        op = R.MutableHashTableV2 if mutable else R.HashTableV2
        with tf.device(WORKER0):
            table = op(key_dtype=keys, value_dtype=values,
                       shared_name=f"from dataset {next(numbers)}")
            fill = R.InitializeTableFromDataset(table_handle=table, dataset=make()._variant_tensor)
            size = R.LookupTableSizeV2(table_handle=table)
            found = R.LookupTableFindV2(table_handle=table, keys=tf.constant(asked, keys),
                                        default_value=tf.constant(preset, values))
        return [Run(fill), Run([size, found]), Run(fill), Run(size)]

    return build


def pairs(keys=("a", "b"), values=(1, 2)):
    return D.from_tensor_slices((list(keys), np.array(values, np.int64)))


def through_api():
    with tf.device(WORKER0):
        table = tf.data.experimental.table_from_dataset(
            pairs(), num_oov_buckets=1, default_value=-1)
        found = table.lookup(tf.constant(["a", "q"]))
        return [Run(tf1.tables_initializer()), Run(found)]


CASES = {
    "pairs": filled(pairs),
    "numbers": filled(lambda: D.range(500).map(lambda x: (x, tf.strings.as_string(x))), tf.int64,
                      tf.string, (1, 499, 500), "?"),
    "nothing": filled(lambda: pairs().take(0)),
    "doubled": filled(lambda: pairs("aa", (1, 2))),
    "the same again": filled(lambda: pairs("aa", (2, 2))),
    "a mutable one": filled(pairs, mutable=True),
}


def cases():
    for name, build in CASES.items():
        yield f"table from dataset/{name}", build
    yield "table from dataset/fails", filled(lambda: pairs().map(lambda k,
            v: (k, 10 // (v - 2)))), {"node": False}
    yield "table from dataset/api", through_api
