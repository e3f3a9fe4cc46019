"""The manifests of deploy/kubernetes: they resolve, fit together, and the daemons take them."""
import copy
import json
import os
import re
import shutil
import subprocess
import unittest

import kustomize
from harness import ROOT, TestCase
from test_deploy import settings

TOP = os.path.join(ROOT, "deploy", "kubernetes")
VARIANTS = ("base", "overlays/etcd", "overlays/gpu", "overlays/monitoring")
JOB = "overlays/job"
VALIDATOR = os.path.join(ROOT, ".venv-tools", "bin", "python")
# The oldest release of which the manifests work, and the newest two of the validator's.
RELEASES = ("1.28", "1.36", "1.37")
# Kinds that are no Kubernetes' own have no schema.
FOREIGN = {"ServiceMonitor"}
VALIDATE = """
import json, sys, kubernetes_validate
objects, releases = json.load(sys.stdin)
for release in releases:
    for o in objects:
        kubernetes_validate.validate(o, release, strict=True)
"""


def by_name(objects):
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}


def is_selected(selector, labels):
    """By a selector of labels, or a Service's map."""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return selector.items() <= labels.items()
    return (selector.get("matchLabels", {}).items() <= labels.items()
            and all(e["operator"] == "In" and labels.get(e["key"]) in e["values"]
                    for e in selector.get("matchExpressions", [])))


class TestKubernetes(TestCase):
    @classmethod
    def setUpClass(cls):
        if not kustomize.has_yaml():
            raise unittest.SkipTest("python3-yaml is not installed")
        cls.variants = {name: kustomize.build(os.path.join(TOP, name)) for name in VARIANTS}
        cls.jobs = kustomize.build(os.path.join(TOP, JOB))

    def each(self):
        """(objects by kind and name, [(workload, its pod's labels, its pod, its container)])"""
        for objects in self.variants.values():
            workloads = []
            for o in objects:
                if o["kind"] in ("StatefulSet", "Deployment"):
                    template = o["spec"]["template"]
                    [container] = template["spec"]["containers"]
                    workloads.append((o, template["metadata"]["labels"], template["spec"],
                                      container))
            yield by_name(objects), workloads

    def check(self, container, index=0):
        args = [arg.replace("$(TASK_INDEX)", str(index)).replace("$(POD_IP)", "10.1.2.3")
                for arg in container["args"]]
        out, _ = self.expect(0, container["command"][0], *args, "--check-config")
        return settings(out)

    def ours(self, workloads):
        return [row for row in workloads if row[3]["command"][0].startswith("tf-")]

    def test_kubectl_makes_the_same_of_them(self):
        if not shutil.which("kubectl"):
            self.skipTest("kubectl is not installed")
        for name, objects in (*self.variants.items(), (JOB, self.jobs)):
            text = subprocess.check_output(["kubectl", "kustomize", os.path.join(TOP, name)],
                                           text=True)
            self.assertEqual(by_name(kustomize.parse(text)), by_name(objects))

    def validate(self, objects):
        return subprocess.run([VALIDATOR, "-c", VALIDATE], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, input=json.dumps([objects, RELEASES]))

    def test_schemas_of_three_releases(self):
        if not os.access(VALIDATOR, os.X_OK):
            self.skipTest("kubernetes-validate is not installed (tools/setup all)")
        for name, objects in (*self.variants.items(), (JOB, self.jobs)):
            ours = [o for o in objects if o["kind"] not in FOREIGN]
            with self.subTest(name=name):
                done = self.validate(ours)
                self.assertEqual(done.returncode, 0, done.stdout[-2000:])
        wrong = copy.deepcopy([o for o in self.jobs if o["kind"] == "Job"])
        wrong[0]["spec"]["completion"] = 1
        self.assertIn("completion", self.validate(wrong).stdout)

    def test_a_finished_job_stays_finished(self):
        base, jobs = by_name(self.variants["base"]), by_name(self.jobs)
        self.assertFalse([kind for kind, _ in jobs if kind in ("StatefulSet", "Deployment")])
        made = {name for kind, name in jobs if kind == "Job"}
        self.assertEqual(made, {"millrace", "millrace-ps", "millrace-worker"})
        for name in made:
            spec = jobs["Job", name]["spec"]
            of_base = base.get(("StatefulSet", name)) or base["Deployment", name]
            pod, [container] = spec["template"]["spec"], spec["template"]["spec"]["containers"]
            [was] = of_base["spec"]["template"]["spec"]["containers"]
            # exit code 0 is the end, and another one is not
            self.assertEqual(pod["restartPolicy"], "OnFailure")
            self.assertEqual(spec["completions"], of_base["spec"]["replicas"])
            self.assertEqual(container["args"], was["args"])
            self.assertEqual({mount["name"] for mount in container["volumeMounts"]},
                             {volume["name"] for volume in pod["volumes"]})
            for volume in pod["volumes"]:
                if "persistentVolumeClaim" in volume:
                    claim = volume["persistentVolumeClaim"]["claimName"]
                    self.assertEqual(jobs["PersistentVolumeClaim", claim]["spec"]["accessModes"],
                                     ["ReadWriteMany"])
            if name == "millrace":
                continue
            self.assertEqual(spec["completionMode"], "Indexed")
            self.assertEqual(spec["parallelism"], spec["completions"])
            self.assertEqual(pod["subdomain"], of_base["spec"]["serviceName"])
            self.assertEqual(jobs["Service", pod["subdomain"]]["spec"]["clusterIP"], "None")
            self.assertIn("job-completion-index",
                          container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"])

    def test_a_cycle_is_found(self):
        os.makedirs(self.path("base/overlay"))
        for path, resource in (("base", "overlay"), ("base/overlay", "..")):
            with open(self.path(f"{path}/kustomization.yaml"), "w", encoding="utf-8") as f:
                f.write(f"resources: [{resource}]\n")
        with self.assertRaises(kustomize.Mistake):
            kustomize.build(self.path("base"))

    def test_nobody_without_a_certificate_changes_anything(self):
        for _, workloads in self.each():
            self.assertEqual(len(self.ours(workloads)), 3)
            for _, _, _, container in self.ours(workloads):
                values = self.check(container)
                self.assertEqual((values["insecure"], values["tls-admin"], values["tls-ca"]),
                                 ("no", "yes", "/tls/ca.pem"))
                self.assertEqual(values.get("tls-client-ca", "/tls/ca.pem"), "/tls/ca.pem")

    def test_ports_and_probes(self):
        for _, workloads in self.each():
            for _, _, _, container in workloads:
                ports = {port["name"]: port["containerPort"] for port in container["ports"]}
                for name in ("readinessProbe", "livenessProbe", "startupProbe"):
                    probe = container.get(name)
                    if not probe and container["command"] == ["etcd"]:
                        continue
                    self.assertIn(probe["httpGet"]["port"], ports)
                if not container["command"][0].startswith("tf-"):
                    continue
                values = self.check(container)
                port = int(values["listen"].rsplit(":", 1)[1])
                self.assertEqual(ports["admin"], port + 10000)
                self.assertEqual(values["admin"], f"0.0.0.0:{port + 10000}")
                self.assertEqual(sorted(ports.values()), [port, port + 10000])
                for name, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/livez"),
                                   ("startupProbe", "/livez")):
                    self.assertEqual(container[name]["httpGet"],
                                     {"path": path, "port": "admin", "scheme": "HTTPS"})

    def test_references_resolve(self):
        for objects, workloads in self.each():
            for (kind, name), o in objects.items():
                if kind == "Service":
                    [found] = [row for row in workloads
                               if is_selected(o["spec"]["selector"], row[1])]
                    ports = {port["name"] for port in found[3]["ports"]}
                    for port in o["spec"]["ports"]:
                        self.assertIn(port.get("targetPort", port["name"]), ports, name)
                elif kind == "PodDisruptionBudget":
                    [found] = [row for row in workloads
                               if is_selected(o["spec"]["selector"], row[1])]
                elif kind == "NetworkPolicy":
                    found = [row for row in workloads
                             if is_selected(o["spec"]["podSelector"], row[1])]
                    ports = {port["containerPort"] for row in found for port in row[3]["ports"]}
                    for rule in o["spec"]["ingress"]:
                        self.assertLessEqual({port["port"] for port in rule["ports"]},
                                             ports | {2222}, name)  # the workers' client port
                        self.assertTrue(rule["from"], name)  # nobody is let in unnamed
                elif kind == "ServiceMonitor":
                    for endpoint in o["spec"]["endpoints"]:
                        services = [s for (k, _), s in objects.items() if k == "Service"
                                    and is_selected(o["spec"]["selector"], s["metadata"]["labels"])]
                        self.assertEqual(len(services), 3)
                        for service in services:
                            self.assertIn(endpoint["port"],
                                          [port["name"] for port in service["spec"]["ports"]])
            for o, labels, pod, container in workloads:
                self.assertTrue(is_selected(o["spec"]["selector"], labels))
                if o["kind"] == "StatefulSet":
                    self.assertIn(("Service", o["spec"]["serviceName"]), objects)
                claims = [claim["metadata"]["name"]
                          for claim in o["spec"].get("volumeClaimTemplates", [])]
                volumes = {volume["name"] for volume in pod["volumes"]} | set(claims)
                mounts = {mount["name"] for mount in container["volumeMounts"]}
                self.assertEqual(mounts, volumes)
                policies = [name for (kind, name), p in objects.items() if kind == "NetworkPolicy"
                            and is_selected(p["spec"]["podSelector"], labels)]
                self.assertEqual(len(policies), 1, f"{o['metadata']['name']}: {policies}")

    def test_checkpoints_outlive_a_pod(self):
        with open(os.path.join(ROOT, "deploy", "Dockerfile"), encoding="utf-8") as f:
            directory = re.search(r"(?m)^WORKDIR (/var\S+)$", f.read()).group(1)
        for _, workloads in self.each():
            for o, _, _, container in workloads:
                if o["kind"] == "StatefulSet":
                    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
                    claims = [c["metadata"]["name"] for c in o["spec"]["volumeClaimTemplates"]]
                    self.assertEqual([mounts[directory]], claims)

    def test_tfctl_makes_the_files_of_the_secrets(self):
        self.expect(0, "tfctl", "certs", self.path("tls"), "--tasks", "ps=1,worker=2", "--host",
                    "millrace")
        files = set(os.listdir(self.path("tls")))
        for _, workloads in self.each():
            for o, labels, pod, container in self.ours(workloads):
                [secret] = [v["secret"] for v in pod["volumes"] if "secret" in v]
                self.assertEqual(secret["secretName"],
                                 f"millrace-tls-{labels['app.kubernetes.io/component']}")
                self.assertEqual(secret["defaultMode"] & 0o007, 0)
                for i in range(o["spec"]["replicas"]):
                    values = self.check(container, i)
                    for name in ("tls-ca", "tls-cert", "tls-key"):
                        self.assertIn(os.path.relpath(values[name], "/tls"), files)

    def test_the_master_knows_the_tasks_that_there_are(self):
        for objects, workloads in self.each():
            made, counts, master = [], {}, None
            for o, _, _, container in self.ours(workloads):
                if o["kind"] == "Deployment":
                    master = self.check(container)
                    continue
                for i in range(o["spec"]["replicas"]):
                    values = self.check(container, i)
                    self.assertEqual(values["task"], str(i))
                    counts[values["job"]] = i + 1
                    made.append(f"{o['metadata']['name']}-{i}.{o['spec']['serviceName']}:"
                                f"{values['listen'].rsplit(':', 1)[1]}")
            if master["etcd"]:
                self.assertEqual(master["expect"], ",".join(f"{job}={n}"
                                                            for job, n in counts.items()))
                self.assertEqual(master["cluster"], "")
            else:
                listed = re.split("[;,]", re.sub(r"\w+=", "", master["cluster"]))
                self.assertEqual(sorted(listed), sorted(made))

    def test_etcd_leads_everybody_to_everybody(self):
        objects = by_name(self.variants["overlays/etcd"])
        port = objects["Service", "millrace-etcd"]["spec"]["ports"][0]["port"]
        for kind, name in (("StatefulSet", "millrace-ps"), ("StatefulSet", "millrace-worker"),
                           ("Deployment", "millrace")):
            [container] = objects[kind, name]["spec"]["template"]["spec"]["containers"]
            values = self.check(container)
            self.assertEqual(values["etcd"], f"http://millrace-etcd:{port}")
            self.assertEqual(values["advertise"].split(":"),
                             ["10.1.2.3", values["listen"].rsplit(":", 1)[1]])
            self.assertIn("POD_IP", [variable["name"] for variable in container["env"]])

    def test_only_workers_get_gpus(self):
        objects = by_name(self.variants["overlays/gpu"])
        for (kind, name), o in objects.items():
            if kind in ("StatefulSet", "Deployment"):
                [container] = o["spec"]["template"]["spec"]["containers"]
                self.assertEqual("nvidia.com/gpu" in container["resources"]["limits"],
                                 name == "millrace-worker")
        [container] = objects["StatefulSet", "millrace-worker"]["spec"]["template"]["spec"][
            "containers"]
        self.assertEqual(self.check(container)["gpu"], "require")

    def test_time_to_drain(self):
        for _, workloads in self.each():
            for _, _, pod, container in self.ours(workloads):
                drain_ms = int(self.check(container)["drain-timeout"].removesuffix("ms"))
                self.assertGreater(pod["terminationGracePeriodSeconds"] * 1000, drain_ms)
