"""Resolves the kustomizations of deploy/kubernetes: what `kubectl kustomize` makes of them.

Only what they use is known: resources, and patches by RFC 6902, which may change kinds.
Everything else is an error."""
import json
import os
import subprocess

# The tests' own Python has no YAML.
TO_JSON = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)"
KNOWN = {"apiVersion", "kind", "resources", "patches"}


class Mistake(Exception):
    """A kustomization that cannot be resolved."""


def has_yaml():
    return subprocess.run(["/usr/bin/python3", "-c", "import yaml"],
                          stderr=subprocess.DEVNULL).returncode == 0


def parse(text):
    """The documents of a YAML text."""
    done = subprocess.run(["/usr/bin/python3", "-c", TO_JSON], input=text, text=True,
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def read(path):
    with open(path, encoding="utf-8") as f:
        return parse(f.read())


def apply(operation, document):
    """One operation of RFC 6902."""
    *above, last = [part.replace("~1", "/").replace("~0", "~")
                    for part in operation["path"].split("/")[1:]]
    place = document
    for part in above:
        place = place[int(part) if isinstance(place, list) else part]
    if operation["op"] == "add" and last == "-":
        place.append(operation["value"])
    elif operation["op"] == "add" and isinstance(place, list):
        place.insert(int(last), operation["value"])
    elif operation["op"] == "add":
        place[last] = operation["value"]
    elif operation["op"] == "replace" and isinstance(place, list):
        place[int(last)] = operation["value"]
    elif operation["op"] == "replace":
        if last not in place:
            raise Mistake(f"nothing to replace at {operation['path']}")
        place[last] = operation["value"]
    elif operation["op"] == "remove":
        del place[int(last) if isinstance(place, list) else last]
    else:
        raise Mistake(f"unknown operation {operation['op']}")


def is_target(target, resource):
    return (resource["kind"], resource["metadata"]["name"]) == (target["kind"], target["name"])


def build(directory, above=()):
    """The objects of the kustomization in a directory."""
    directory = os.path.realpath(directory)
    if any(other == directory or other.startswith(directory + os.sep) for other in above):
        raise Mistake(f"{directory} contains itself")
    [kustomization] = read(os.path.join(directory, "kustomization.yaml"))
    if unknown := set(kustomization) - KNOWN:
        raise Mistake(f"unknown fields {unknown}")
    found = []
    for name in kustomization["resources"]:
        path = os.path.join(directory, name)
        found += build(path, (*above, directory)) if os.path.isdir(path) else read(path)
    names = [(o["kind"], o["metadata"]["name"]) for o in found]
    if len(set(names)) != len(names):
        raise Mistake(f"an object exists twice: {names}")
    for patch in kustomization.get("patches", []):
        targets = [resource for resource in found if is_target(patch["target"], resource)]
        if not targets:
            raise Mistake(f"no {patch['target']} to patch")
        for operation in parse(patch["patch"])[0]:
            for target in targets:
                apply(operation, target)
    return found
