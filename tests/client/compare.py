"""Runs the same calls through libmillrace and through TensorFlow's own C API."""
import unittest

from c_library import Builder, Refused, millrace, normal_graph_def, tensorflow


class Compared(unittest.TestCase):
    maxDiff = 4000

    def builders(self):
        for library in (millrace(), tensorflow()):
            builder = Builder(library)
            self.addCleanup(builder.close)
            yield builder

    def both(self, scenario):
        """What the scenario returns must be equal, or its error must have the same code."""
        results = []
        for builder in self.builders():
            try:
                results.append(("OK", scenario(builder)))
            except Refused as e:
                results.append((e.code, e.message))
        (ours_code, ours), (theirs_code, theirs) = results
        self.assertEqual(ours_code, theirs_code, f"\nours: {ours}\ntheirs: {theirs}")
        if ours_code == "OK":
            self.assertEqual(ours, theirs)
        return ours

    def same_graph(self, scenario):
        def run(b):
            result = scenario(b)
            shapes = {b.name(oper): [b.shape(output) for output in outputs_of(b, oper)]
                      for oper in b.operations()}
            return normal_graph_def(b.graph_def()), shapes, [
                b.name(oper) for oper in b.operations()], result
        return self.both(run)

    def refused(self, scenario, code, *words):
        """Both refuse it with this code, and both messages have these words."""
        for builder in self.builders():
            with self.assertRaises(Refused) as caught:
                scenario(builder)
            who = "ours" if builder.c.is_ours else "theirs"
            self.assertEqual(caught.exception.code, code, f"{who}: {caught.exception.message}")
            for word in words:
                self.assertIn(word, caught.exception.message, who)

    def we_refuse(self, scenario, code, *words):
        """What TensorFlow's library accepts, and only a server would refuse."""
        builder = next(self.builders())
        with self.assertRaises(Refused) as caught:
            scenario(builder)
        self.assertEqual(caught.exception.code, code, caught.exception.message)
        for word in words:
            self.assertIn(word, caught.exception.message)


def outputs_of(b, oper):
    from c_library import Output
    return [Output(oper, i) for i in range(b.c.TF_OperationNumOutputs(oper))]
