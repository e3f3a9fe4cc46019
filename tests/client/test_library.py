"""The shared library as it is installed: its symbols, its headers, and a program that uses it."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from c_library import BUILD, ROOT, SHARED_OBJECT, prototypes

sys.path.insert(0, os.path.join(ROOT, "tools"))
import c_api  # noqa: E402

PROGRAM = r"""
#include <millrace/c_api.h>
#include <millrace/training.h>
#include <stdio.h>
int main(void) {
    TF_Status *status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    TF_OperationDescription *desc = TF_NewOperation(graph, "Placeholder", "x");
    TF_SetAttrType(desc, "dtype", TF_FLOAT);
    TF_Operation *x = TF_FinishOperation(desc, status);
    printf("%d %s\n", TF_GetCode(status), x ? TF_OperationOpType(x) : TF_Message(status));
    MR_Builder *builder = MR_NewBuilder(graph);
    MR_NewVariable(builder, "v", TF_FLOAT, NULL, 0, MR_Zeros());
    printf("%d\n", TF_GetCode(MR_BuilderStatus(builder)));
    MR_DeleteBuilder(builder);
    TF_DeleteGraph(graph);
    TF_DeleteStatus(status);
    return 0;
}
"""


class TestLibrary(unittest.TestCase):
    def test_only_what_the_headers_declare_is_exported(self):
        listing = subprocess.run(["nm", "-D", "--defined-only", SHARED_OBJECT], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
        exported = {line.split()[-1] for line in listing.splitlines() if " A " not in line}
        self.assertEqual({name.split("@")[0] for name in exported}, set(prototypes()))
        self.assertEqual({name.split("@@")[1] for name in exported}, {"MILLRACE_0"})
        header_names = {n for names in c_api.headers(ROOT).values() for n in names}
        self.assertEqual(header_names, set(prototypes()))

    def test_the_soname(self):
        dynamic = subprocess.run(["readelf", "-d", SHARED_OBJECT], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
        self.assertRegex(dynamic, r"SONAME.*\[libmillrace\.so\.0\]")

    def test_the_table_has_the_functions_of_the_wheel(self):
        import importlib.util
        folder = os.path.join(os.path.dirname(importlib.util.find_spec("tensorflow").origin),
                              "include", "tensorflow", "c")
        for header in c_api.FUNCTIONS:
            with open(os.path.join(folder, header), encoding="utf-8") as f:
                text = re.sub(r"//.*|^#.*$", "", f.read(), flags=re.M)
            text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
            names = dict.fromkeys(re.findall(r"\b(TF_\w+)\s*\(", text))
            for macro in ("TF_CAPI_EXPORT", "TF_OFFSET_OF_END"):
                names.pop(macro, None)
            self.assertEqual(list(names), c_api.functions(header))

    @unittest.skipUnless(shutil.which("pkg-config") and shutil.which("cc"),
                         "pkg-config or cc is missing")
    def test_a_program_builds_against_the_installed_library(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet",
                            "--tags", "client,devel", "--destdir", folder], check=True)
            pc = subprocess.run(["find", folder, "-name", "millrace.pc"], check=True,
                                stdout=subprocess.PIPE, text=True).stdout.strip()
            env = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(pc),
                   "PKG_CONFIG_SYSROOT_DIR": folder}
            flags = subprocess.run(["pkg-config", "--cflags", "--libs", "millrace"], check=True,
                                   stdout=subprocess.PIPE, text=True, env=env).stdout.split()
            source, program = os.path.join(folder, "p.c"), os.path.join(folder, "p")
            with open(source, "w", encoding="utf-8") as f:
                f.write(PROGRAM)
            for compiler in (["cc", "-std=c99"], ["c++", "-x", "c++"]):
                subprocess.run([*compiler, "-Wall", "-Werror", source, "-x", "none", "-o", program,
                                *flags], check=True)
                libraries = os.path.dirname(os.path.dirname(pc))
                out = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True,
                                     env={**os.environ, "LD_LIBRARY_PATH": libraries}).stdout
                self.assertEqual(out, "0 Placeholder\n0\n")


if __name__ == "__main__":
    unittest.main()
