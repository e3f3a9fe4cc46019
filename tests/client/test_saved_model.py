"""SavedModels that TensorFlow's Python writes, loaded by TensorFlow's library in process, and by
both libraries into a cluster of ours."""
import ctypes
import os
import tempfile
import unittest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf

from c_library import FLOAT, Buffer, Builder, Output, Refused, millrace, tensorflow
from local_cluster import target

tf1 = tf.compat.v1
VOCABULARY = ["apple", "pear", "plum"]


def write_v1(folder):
    """Variables, an asset that a table is made from, and one model for each of two sets of tags."""
    words = os.path.join(os.path.dirname(folder), "words.txt")
    with open(words, "w", encoding="utf-8") as f:
        f.write("\n".join(VOCABULARY) + "\n")
    builder = tf1.saved_model.Builder(folder)
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, 2], "x")
        w = tf1.get_variable("w", initializer=[[1., 2.], [3., 4.]], use_resource=True)
        v = tf1.get_variable("v", initializer=[10., 20.], use_resource=False)
        tf.add(tf.matmul(x, w), v, name="y")
        asset = tf.constant(words)
        tf1.add_to_collection(tf1.GraphKeys.ASSET_FILEPATHS, asset)
        table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(asset, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
                                          tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), -1)
        tf.cast(table.lookup(tf.constant(["plum", "apple", "fig"])), tf.float32, name="found")
        session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
        session.run([w.assign_add([[.5, .5], [.5, .5]]), v.assign_add([1., 1.])])
        builder.add_meta_graph_and_variables(session, ["serve"],
                                             assets_collection=[asset],
                                             main_op=tf1.tables_initializer())
        builder.add_meta_graph(["serve", "gpu"])
    builder.save()
    os.unlink(words)


def write_v2(folder):
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable([[1., 2.], [3., 4.]])

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
        def __call__(self, x):
            return tf.matmul(x, self.w)
    model = Model()
    model.w.assign_add([[.25, .25], [.25, .25]])
    tf.saved_model.save(model, folder)


class TestSavedModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="saved-model-")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "model")

    def load(self, library, where, tags, folder=None):
        """(builder, session, MetaGraphDef)"""
        b = Builder(library)
        self.addCleanup(b.close)
        options, meta = library.TF_NewSessionOptions(), library.TF_NewBuffer()
        library.TF_SetTarget(options, where.encode())
        names = (ctypes.c_char_p * len(tags))(*(tag.encode() for tag in tags))
        try:
            session = b.call("TF_LoadSessionFromSavedModel", options, None,
                             (folder or self.folder).encode(), names, len(tags), b.graph, meta)
            self.addCleanup(b.call, "TF_DeleteSession", session)
            data = Buffer.from_address(meta)
            return b, session, tf1.MetaGraphDef.FromString(
                ctypes.string_at(data.data, data.length))
        finally:
            library.TF_DeleteBuffer(meta)
            library.TF_DeleteSessionOptions(options)

    def ways(self):
        return (tensorflow(), ""), (millrace(), target()), (tensorflow(), target())

    def test_variables_assets_and_tags(self):
        write_v1(self.folder)
        for library, where in self.ways():
            b, session, meta = self.load(library, where, ["serve"])
            self.assertEqual(list(meta.meta_info_def.tags), ["serve"])
            x, y, found = (Output(b.find(name), 0) for name in ("x", "y", "found"))
            values = b.run(session, [y, found], [(x, b.tensor(FLOAT, [1, 2], [1, 1]))])
            self.assertEqual([v[2] for v in values], [[16, 28], [2, 0, -1]])
            _, _, meta = self.load(library, where, ["gpu", "serve"])
            self.assertEqual(set(meta.meta_info_def.tags), {"serve", "gpu"})

    def test_a_model_of_tensorflow_2(self):
        write_v2(self.folder)
        for library, where in self.ways():
            b, session, meta = self.load(library, where, ["serve"])
            signature = meta.signature_def["serving_default"]
            x, y = (Output(b.find(info.name.split(":")[0]), int(info.name.split(":")[1]))
                    for info in (signature.inputs["x"], *signature.outputs.values()))
            values = b.run(session, [y], [(x, b.tensor(FLOAT, [1, 2], [1, 2]))])
            self.assertEqual(values[0][2], [7.75, 10.75])

    def test_refusals(self):
        write_v2(self.folder)
        for library, where in self.ways()[:2]:
            with self.assertRaisesRegex(Refused, "NOT_FOUND: Could not find meta graph def"):
                self.load(library, where, ["train"])
            with self.assertRaisesRegex(Refused, "NOT_FOUND: Could not find SavedModel"):
                self.load(library, where, ["serve"], self.folder + "/variables")
        with open(os.path.join(self.folder, "saved_model.pb"), "r+b") as f:
            f.truncate(1000)
        with self.assertRaisesRegex(Refused, "INVALID_ARGUMENT: Cannot parse .*saved_model.pb"):
            self.load(millrace(), target(), ["serve"])

    def test_tensors_of_protos(self):
        for value in ([1.5, 2.5], [[1], [2]], ["a", "bc"], True):
            proto = tf1.make_tensor_proto(value).SerializeToString()
            for library in (tensorflow(), millrace()):
                b = Builder(library)
                buffer = library.TF_NewBufferFromString(proto, len(proto))
                tensor = b.tensor(FLOAT, [1], [7])
                b.call("TF_TensorFromProto", buffer, tensor)
                self.assertEqual(library.TF_TensorType(tensor), tf.constant(value).dtype)
                self.assertEqual([library.TF_Dim(tensor, i) for i in
                                  range(library.TF_NumDims(tensor))], tf.constant(value).shape)
                library.TF_DeleteTensor(tensor)
                library.TF_DeleteBuffer(buffer)
                b.close()


if __name__ == "__main__":
    unittest.main()
