"""Plants violations in a small tree, and expects tools/check.py and tools/check_docs.py to find
each of them."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools"))
import check  # noqa: E402
import check_docs  # noqa: E402

sys.path.insert(0, HERE)
import pages  # noqa: E402

OPENING = "/* Adds two numbers, which is all that this file does. */\n"


class PlantedTree(unittest.TestCase):
    """Each test writes files into an empty tree and looks at what the checks say of it."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root, check.ROOT = check.ROOT, self.folder.name

    def tearDown(self):
        check.ROOT = self.root
        self.folder.cleanup()

    def write(self, path, text):
        full = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)

    def assert_finds(self, function, *words):
        complaints = list(function())
        self.assertEqual(len(complaints), 1, complaints)
        for word in words:
            self.assertIn(word, complaints[0])

    def assert_silent(self, function):
        self.assertEqual(list(function()), [])


class TestSources(PlantedTree):
    def test_an_include_that_points_upwards_is_found(self):
        self.write("common/base/a.c", OPENING + '#include "common/tensor/tensor.h"\n')
        self.assert_finds(check.check_include_table, "common/base/a.c:2", "common/tensor/tensor.h")

    def test_an_include_of_a_lower_room_is_allowed(self):
        self.write("common/tensor/a.c", OPENING + '#include "common/base/status.h"\n')
        self.assert_silent(check.check_include_table)

    def test_an_include_of_a_folder_on_the_same_floor_is_found(self):
        self.write("master/step/a.c", OPENING + '#include "worker/plan/plan.h"\n')
        self.assert_finds(check.check_include_table, "master/ may not include worker/plan/plan.h")

    def test_a_script_that_cannot_be_run_is_found(self):
        self.write("tests/plain.py", "import os\n")
        self.assert_silent(check.check_scripts_can_run)
        self.write("tests/run.py", "#!/usr/bin/env python3\n")
        self.assert_finds(check.check_scripts_can_run, "tests/run.py", "not executable")
        os.chmod(os.path.join(self.folder.name, "tests/run.py"), 0o755)
        self.assert_silent(check.check_scripts_can_run)

    def test_an_internal_error_that_nobody_reviewed_is_found(self):
        self.write("kernels/cpu/a.c", OPENING + "x = status_internal(\"%s\", why);\n")
        self.assert_finds(check.check_internal_errors, "kernels/cpu/a.c", "says INTERNAL 1 times")

    def test_an_internal_error_of_the_master_is_reviewed_too(self):
        self.write("master/step/a.c", OPENING + "x = status_internal(\"%s\", why);\n")
        self.assert_finds(check.check_internal_errors, "master/step/a.c", "says INTERNAL 1 times")

    def test_a_reviewed_internal_error_is_allowed(self):
        self.write("common/io/inflate.c", OPENING + "x = status_internal(\"%s\", why);\n")
        self.write("tfctl/a.c", OPENING + "x = status_internal(\"%s\", why);\n")
        self.assert_silent(check.check_internal_errors)

    def test_an_internal_header_of_another_room_is_found(self):
        self.write("worker/executor/a.c", OPENING + '#include "worker/plan/plan_internal.h"\n')
        self.assert_finds(check.check_include_table, "is for its own room only")

    def test_a_folder_without_a_room_is_found(self):
        self.write("kernels/cpu/new/a.c", OPENING)
        self.assert_finds(check.check_include_table, "has no room")

    def test_a_banned_call_is_found_but_not_in_a_comment_or_a_string(self):
        self.write("common/base/a.c",
                   OPENING + 'void f(char *a) { strcpy(a, "strcat()"); /* sprintf() */ }\n')
        self.assert_finds(check.check_banned_calls, "a.c:2", "strcpy")

    def test_a_wrong_guard_is_found(self):
        self.write("common/base/a.h", OPENING + "#ifndef A_H\n#define A_H\n#endif\n")
        self.assert_finds(check.check_header_guards, "MILLRACE_COMMON_BASE_A_H")

    def test_a_file_that_includes_its_header_late_is_found(self):
        self.write("common/base/a.h", OPENING)
        self.write("common/base/a.c", OPENING + '#include <stdio.h>\n#include "common/base/a.h"\n')
        self.assert_finds(check.check_own_header_first, "should include common/base/a.h first")

    def test_a_file_without_an_opening_is_found_also_when_it_has_a_header(self):
        self.write("common/base/a.h", OPENING)
        self.write("common/base/a.c", '#include "common/base/a.h"\n')
        self.assert_finds(check.check_opening_comment, "a.c", "opens without a sentence")

    def test_an_opening_that_is_no_sentence_is_found(self):
        self.write("common/base/a.c", "/* Helpers */\n")
        self.assert_finds(check.check_opening_comment, "is no sentence")

    def test_an_opening_over_several_lines_is_read(self):
        self.write("common/base/a.c", "// Adds two numbers\n// and returns the sum.\nint x;\n")
        self.assert_silent(check.check_opening_comment)

    def test_a_line_of_101_columns_is_found_and_one_of_100_is_not(self):
        self.write("common/ops/a.c", OPENING + "/" * 101 + "\n" + "/" * 100 + "\n")
        self.assert_finds(check.check_line_length, "a.c:2", "101 columns")

    def test_a_generated_file_may_have_long_lines(self):
        self.write("common/signatures/op_signatures.c", "/" * 300 + "\n")
        self.assert_silent(check.check_line_length)

    def test_a_macro_of_16_lines_is_found_and_one_of_15_is_not(self):
        lines = ["#define A(x) \\"] + ["    x \\"] * 14 + ["    x"]
        self.write("common/base/a.c", OPENING + "\n".join(lines) + "\n\n"
                   + "\n".join(lines[:1] + lines[2:]) + "\n")
        self.assert_finds(check.check_macro_length, "a.c:2", "a macro of 16 lines")

    def test_a_file_that_its_readme_does_not_name_is_found(self):
        self.write("common/base/a.c", OPENING)
        self.write("common/base/b.c", OPENING)
        self.write("common/base/README.md", "# common/base: sums\n\n`a.c` adds.\n")
        self.assert_finds(check.check_folder_readmes, "does not name common/base/b.c")

    def test_a_file_that_a_readme_names_and_that_is_gone_is_found(self):
        self.write("common/base/a.c", OPENING)
        self.write("common/base/README.md",
                   "# common/base: sums\n\n`a.c` adds, `gone.c` subtracts.\n")
        self.assert_finds(check.check_folder_readmes, "names gone.c, which is not there")

    def test_lengths_of_functions_are_counted(self):
        text = (OPENING
                + "static int f(int a);\nstatic int f(int a,\n             int b) {\n    return "
                  "a;\n}\n" \
            "static const int list[] = {\n    1,\n};\nint g(void) { return 1; }\n")
        self.assertEqual(list(check.functions(text))[0], ("f", 3, 4))


class TestRooms(PlantedTree):
    def edges(self, **arrows):
        names = [name for name, _ in check.ROOMS]
        edges = {index: set() for index in range(len(names))}
        for room, others in arrows.items():
            edges[names.index(room)] = {names.index(other) for other in others}
        return edges

    def test_an_arrow_that_points_upwards_is_found(self):
        complaints = list(check.wrong_arrows(self.edges(kernels=["master"])))
        self.assertEqual(complaints, ["kernels -> master points upwards"])

    def test_a_circle_is_found(self):
        complaints = list(check.wrong_arrows(self.edges(kernels=["master"], master=["kernels"])))
        self.assertIn("kernels is on a circle", complaints)

    def test_arrows_that_follow_from_others_are_left_out(self):
        edges = check.reduced(self.edges(master=["rpc", "kernels"], rpc=["kernels"]))
        names = [name for name, _ in check.ROOMS]
        self.assertEqual(edges[names.index("master")], {names.index("rpc")})

    def test_a_drawing_that_is_out_of_date_is_found(self):
        self.write("docs/architecture.md", check.DRAWING_BEGIN + "old\n" + check.DRAWING_END)
        self.assert_finds(check.check_include_drawing, "out of date")
        self.write("docs/architecture.md", check.DRAWING_BEGIN + check.generated_rooms()
                   + check.DRAWING_END)
        self.assert_silent(check.check_include_drawing)


    def test_the_table_of_rooms_has_the_first_sentences_of_their_readmes(self):
        self.write("common/base/README.md", "# common/base: what everything needs\n")
        self.write("common/tensor/README.md",
                   "# common/tensor\n\nTensors (`tensor.h`) and\nbuffers. And more.\n")
        table = check.room_table()
        self.assertIn("| [common/base](../common/base/README.md) | what everything needs |", table)
        self.assertIn("| [common/tensor](../common/tensor/README.md) | Tensors (`tensor.h`) and "
                      "buffers |", table)
        self.assertIn("| common/io |  |", table)


class TestCommits(PlantedTree):
    def test_good_subjects(self):
        for subject in ("tools: check commit subjects", "worker/plan, master: rename cut to edge",
                        "README.md: say what `tfctl` does", "kernels: focus the loops",
                        "docs: embed the drawing"):
            self.assertIsNone(check.subject_complaint(subject), subject)

    def test_bad_subjects(self):
        for subject in ("tools: " + "x" * 70, "tools: add this; add that", "no folder here",
                        "tools: checks subjects",
                        "tools: added a check", "tools: adding a check", "tools: the check is new",
                        "Rooms: A new cut"):
            self.assertIsNotNone(check.subject_complaint(subject), subject)

    def git(self, *arguments):
        identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c",
                    "commit.gpgsign=false"]
        subprocess.run(["git", "-C", self.folder.name, *identity, *arguments], check=True,
                       stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def commit(self, subject):
        self.git("commit", "--allow-empty", "-m", subject)

    def test_commits_before_the_first_checked_one_are_not_read_and_merges_are_reported(self):
        self.git("init", "-b", "main")
        self.commit("whatever; it was like that")
        self.commit(check.FIRST_CHECKED_COMMIT)
        self.git("branch", "side")
        self.commit("tools: add a check")
        self.assert_silent(check.check_commit_subjects)
        self.git("checkout", "side")
        self.commit("tools: add another check")
        self.git("merge", "--no-ff", "-m", "tools: merge the two", "main")
        self.assert_finds(check.check_commit_subjects, "is a merge commit")


class TestPages(PlantedTree):
    def test_a_link_to_nowhere_is_found(self):
        self.write("README.md", "# A\n\n[b](docs/b.md)\n")
        self.assert_finds(check_docs.check_links, "README.md:3", "docs/b.md, which does not exist")

    def test_a_link_to_a_heading_that_is_not_there_is_found(self):
        self.write("README.md", "# A b\n\n[good](#a-b) [bad](#c)\n")
        self.assert_finds(check_docs.check_links, "#c has no such heading")

    def test_a_page_that_no_link_leads_to_is_found(self):
        self.write("README.md", "# A\n\n[b](b/README.md)\n")
        self.write("b/README.md", "# B\n")
        self.write("c/README.md", "# C\n")
        self.assert_finds(check_docs.check_readmes_are_linked, "c/README.md")

    def test_a_path_that_does_not_exist_is_found_but_not_in_code(self):
        self.write("common/a.c", OPENING)
        self.write("README.md", "`common/a.c`, `common/b.c`\n\n```text\n`common/d.c`\n```\n")
        self.assert_finds(check_docs.check_paths_in_pages, "README.md:1",
                          "common/b.c does not exist")

    def test_a_file_of_another_tree_is_found(self):
        self.write("common/a.c", "/* Adds as " + "DESIGN" + ".md says. */\n")
        self.assert_finds(check_docs.check_absent_files, "common/a.c:1")

    def test_a_long_line_of_prose_is_found_but_not_of_a_table(self):
        self.write("README.md", "x" * 101 + "\n\n| " + "y" * 101 + " |\n")
        self.assert_finds(check_docs.check_page_line_length, "README.md:1")

    def test_a_retired_word_is_found_where_it_is_retired(self):
        rows = check_docs.retired_rows("| `not_yet` | code | x | it is not read | |\n## Retired "
                                       "words\n"
                                       "| `foo_*` | code | bar | two meanings | |\n"
                                       "| `afresh`, `in line` | prose | again | a riddle | "
                                       "`kept.md`, `old/` |\n")
        text = "/* Starts afresh, waits in\n * line. */\nint afresh = not_yet + foo_bar(1);\n"
        self.assertEqual([complaint.split(": ")[0]
                          for complaint in check_docs.retired_words_of("a.c", text, rows)],
                         ["a.c:3", "a.c:1", "a.c:1"])
        for path, page in (("kept.md", "afresh"), ("old/a.md", "afresh"), ("b.md", "foo_bar"),
                           ("b.md", "```\nafresh\n```")):
            self.assertEqual(list(check_docs.retired_words_of(path, page, rows)), [])

    def test_a_glossary_without_retired_words_is_found(self):
        self.write("docs/glossary.md", "# Glossary\n")
        self.assert_finds(check_docs.check_retired_words, "has no table")


class TestBlocks(unittest.TestCase):
    def blocks(self, text):
        return pages.read_blocks("page.md", text)

    def test_a_marker_belongs_to_the_block_below_it(self):
        one, two = self.blocks('<!-- docs: serve until="true; true" '
                               '-->\n```sh\nsleep\n```\n\n```ini\na = 1\n```\n')
        self.assertEqual((one.mode, one.values["until"], one.language, one.line),
                         ("serve", "true; true", "sh", 2))
        self.assertEqual((two.mode, two.values, two.language), ("run", {}, "ini"))

    def test_mistakes_in_markers_are_found(self):
        for text in ("```\na\n```\n", "```tcl\na\n```\n", "<!-- docs: syntax -->\n```sh\na\n```\n",
                     "<!-- docs: serve -->\n```sh\na\n```\n",
                     "<!-- docs: rnu -->\n```sh\na\n```\n"):
            self.assertIsNotNone(self.blocks(text)[0].mistake, text)

    def test_hosts_are_told_apart(self):
        self.assertEqual(pages.split_hosts("# on a\nx\ny\n# on b-1: later\nz\n"),
                         [("a", "x\ny\n"), ("b-1", "z\n")])
        with self.assertRaises(ValueError):
            pages.split_hosts("x\n# on a\ny\n")

    def test_output_is_compared_line_by_line(self):
        self.assertEqual(pages.split_console("$ a\nb\n...\n$ c\n"),
                         [("a", ["b", "..."]), ("c", [])])
        self.assertTrue(pages.output_matches(["a", "...", "d"], ["a", "b", "c", "d"]))
        self.assertTrue(pages.output_matches(["a", "..."], ["a"]))
        self.assertFalse(pages.output_matches(["a", "...", "d"], ["a", "b"]))
        self.assertFalse(pages.output_matches(["a"], ["a", "b"]))

    def test_commands_and_their_flags(self):
        commands = pages.simple_commands("A=1 one --x=1 \\\n  --y # --z\ntwo; three -- --w\n")
        self.assertEqual([words[0] for words in commands], ["one", "two", "three"])
        self.assertEqual([pages.flags_of(words) for words in commands], [["--x", "--y"], [], []])


if __name__ == "__main__":
    unittest.main()
