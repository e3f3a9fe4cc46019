"""The list of ops that graphs need most, beside the tables of the built programs: how many of them
have a GPU row is what docs/gpu-ops.md says, and a lost row or type is noticed."""
import copy
import json
import os
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import gen_docs  # noqa: E402
import gpu_ops  # noqa: E402

BUILD = os.path.dirname(os.environ["MILLRACE_BIN"].rstrip("/")) if "MILLRACE_BIN" in os.environ \
    else os.path.join(ROOT, "build")
DUMP = os.path.join(BUILD, "tests", "tools", "dump_tables")
N_FIRST, N_NOWHERE = 243, 26
MISSING = []


@unittest.skipUnless(os.access(DUMP, os.X_OK), "dump_tables is not built")
class TestGpuOps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.built = json.loads(subprocess.run([DUMP], check=True, stdout=subprocess.PIPE,
                                              text=True).stdout)
        cls.ops = [op for op, _ in gpu_ops.first_ops()]

    def setUp(self):
        self.tables = copy.deepcopy(self.built)

    def count(self):
        return gpu_ops.count(gpu_ops.Rows(self.tables), self.ops)

    def without(self, op):
        self.tables["gpu"] = [row for row in self.tables["gpu"] if row["op"] != op]

    def test_the_list_names_ops_once_each(self):
        self.assertEqual(len(self.ops), N_FIRST)
        self.assertEqual(len(set(self.ops)), N_FIRST)
        self.assertEqual(set(self.ops) - set(gen_docs.signatures()), set())

    def test_the_first_ops_that_tensorflow_has_on_a_gpu_are_there(self):
        rows, n = gpu_ops.Rows(self.tables), self.count()
        self.assertEqual(sum(n.values()), N_FIRST)
        self.assertEqual(n[gpu_ops.NOWHERE], N_NOWHERE)
        self.assertEqual(sorted(op for op in self.ops if rows.state(op) == gpu_ops.MISSING),
                         MISSING)

    def test_no_type_of_theirs_is_missing(self):
        rows = gpu_ops.Rows(self.tables)
        self.assertEqual({op: types for op in self.ops if (types := rows.missing_types(op))}, {})

    def test_the_page_prints_the_count(self):
        n_here = N_FIRST - N_NOWHERE - len(MISSING)
        text = gpu_ops.page(self.tables, gen_docs.show_types)
        self.assertIn(f"has a GPU row for {N_FIRST - N_NOWHERE} of them", text)
        self.assertIn(f"**Here {n_here} of those have one**", text)

    def test_a_lost_row_is_missing(self):
        before = self.count()[gpu_ops.MISSING]
        self.without("MatMul")
        self.assertEqual(gpu_ops.Rows(self.tables).state("MatMul"), gpu_ops.MISSING)
        self.assertEqual(self.count()[gpu_ops.MISSING], before + 1)
        self.assertIn("| `MatMul` | 202 | **missing** |",
                      gpu_ops.page(self.tables, gen_docs.show_types))

    def test_a_lost_type_is_named(self):
        for row in self.tables["gpu"]:
            if row["op"] == "MatMul":
                row["types"]["T"].remove("half")
        self.assertEqual(gpu_ops.Rows(self.tables).missing_types("MatMul"), {"T": {"half"}})
        self.assertRegex(gpu_ops.page(self.tables, gen_docs.show_types),
                         r"\| `MatMul` \| 202 \| yes \| T: half \|")

    def test_an_op_that_tensorflow_lost_is_nowhere(self):
        self.tables["gpu_facts"] = [row for row in self.tables["gpu_facts"]
                                    if row["op"] != "MatMul"]
        self.without("MatMul")
        self.assertEqual(gpu_ops.Rows(self.tables).state("MatMul"), gpu_ops.NOWHERE)

    def test_ops_of_functions_are_replaced_only_if_the_master_knows_them(self):
        rows = gpu_ops.Rows(self.tables)
        for op in ("While", "StatelessWhile", "If", "StatelessIf", "Case", "PartitionedCall",
                   "StatefulPartitionedCall"):
            self.assertEqual(rows.state(op), gpu_ops.REPLACES, op)
        rows.supported.remove("While")
        self.assertEqual(rows.state("While"), gpu_ops.MISSING)


if __name__ == "__main__":
    unittest.main()
