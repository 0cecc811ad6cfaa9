#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
files.py SOURCE IMAGE - the container image, unpacked from its archive into the directory IMAGE, agrees with itself and with the
compose file and the Kubernetes manifest of SOURCE. Prints how both start it, as assignments of a shell: user, environment, daemon,
health, client_user, client, layer (a file).
"""
import hashlib
import json
import pathlib
import re
import shlex
import sys
import tarfile

import yaml

source, image = (pathlib.Path(arg) for arg in sys.argv[1:])
files = source / "packaging/container"


def check(what, holds):
    if not holds:
        sys.exit(f"container: {what}")


def same(what, got, wanted):
    check(f"{what}: {got!r} instead of {wanted!r}", got == wanted)


def blob(of):
    """The path of a blob, whose bytes are those that its descriptor promises."""
    algorithm, digest = of["digest"].split(":")
    path = image / "blobs" / algorithm / digest
    data = path.read_bytes()
    same(f"digest of {path}", hashlib.sha256(data).hexdigest(), digest)
    same(f"size of {path}", len(data), of["size"])
    return path


index = json.loads((image / "index.json").read_text())["manifests"]
same("number of manifests", len(index), 1)
name = index[0]["annotations"]["org.opencontainers.image.ref.name"]
manifest = json.loads(blob(index[0]).read_text())
config = json.loads(blob(manifest["config"]).read_text())
same("number of layers", len(manifest["layers"]), 1)
layer = blob(manifest["layers"][0])
with tarfile.open(layer) as tar:
    members = {member.name.removeprefix("./"): member for member in tar.getmembers()}
started = config["config"]
user, group = (int(number) for number in started["User"].split(":"))
check("the user is root", user and group)
volumes = set(started["Volumes"])
for volume in volumes:
    check(f"the user does not own {volume}", (members[volume[1:]].uid, members[volume[1:]].gid) == (user, group))


def program(words):
    check(f"the image has no program {words[0]}", "usr/bin/" + words[0] in members)
    return words


entry = program(started["Entrypoint"])
kind, *health = started["Healthcheck"]["Test"]
same("kind of the health check", kind, "CMD")
program(health)


def mounts(where, targets):
    """All that must be written is a volume, and nothing is mounted where the image has nothing."""
    check(f"{where}: no mount for {volumes - set(targets)}", volumes <= set(targets))
    for target in targets:
        check(f"{where}: the image has no directory {target}", target[1:] in members and members[target[1:]].isdir())


def command(where, words):
    """The daemon's options; the model is in a mounted directory."""
    check(f"{where}: {words}", words[0] == "--model" and re.fullmatch(r"[a-z]+=/models/[a-z]+", words[1]))
    return words


# Docker's and Podman's file.
compose = yaml.safe_load((files / "compose.yaml").read_text())
daemon, client = compose["services"]["txdad"], compose["services"]["tale"]
for service in daemon, client:
    same("compose.yaml: image", service["image"], name)
    same("compose.yaml: network", service["network_mode"], "none")
same("compose.yaml: health check", daemon["healthcheck"]["test"], ["CMD", *health])
check("compose.yaml: the client does not wait for it", client["depends_on"]["txdad"]["condition"] == "service_healthy")
named = [volume.rsplit("}", 1)[-1].split(":") for volume in daemon["volumes"] + client["volumes"]]
for volume in named:
    check(f"compose.yaml: volume {volume[0]} is not declared", not volume[0] or volume[0] in compose["volumes"])
mounts("compose.yaml", [volume[1] for volume in named] + daemon["tmpfs"])
words = command("compose.yaml", daemon["command"])
program(client["entrypoint"])


def check_client(where, number, of):
    """The daemon takes its own user and root for administrators; the group may use the socket."""
    check(f"{where}: the client is user {number}", number not in (0, user))
    same(f"{where}: the client's group", of, group)


check_client("compose.yaml", *map(int, client["user"].split(":")))

# Kubernetes'.
deployment = yaml.safe_load((files / "kubernetes.yaml").read_text())
same("kubernetes.yaml: kind", (deployment["apiVersion"], deployment["kind"]), ("apps/v1", "Deployment"))
template = deployment["spec"]["template"]
pod = template["spec"]
same("kubernetes.yaml: selector", deployment["spec"]["selector"]["matchLabels"], template["metadata"]["labels"])
for field, number in ("runAsUser", user), ("runAsGroup", group), ("fsGroup", group):
    same(f"kubernetes.yaml: {field}", pod["securityContext"][field], number)
containers = {container["name"]: container for container in pod["containers"]}
for container in containers.values():
    same("kubernetes.yaml: image", container["image"], name)
    for mount in container["volumeMounts"]:
        check(f"kubernetes.yaml: no volume {mount['name']}", mount["name"] in {volume["name"] for volume in pod["volumes"]})
mounts("kubernetes.yaml", [mount["mountPath"] for mount in containers["txdad"]["volumeMounts"]])
same("kubernetes.yaml: arguments", containers["txdad"]["args"], words)
for probe in "startupProbe", "readinessProbe":
    same(f"kubernetes.yaml: {probe}", containers["txdad"][probe]["exec"]["command"], health)
program(containers["client"]["command"])
check_client("kubernetes.yaml", containers["client"]["securityContext"]["runAsUser"],
             containers["client"]["securityContext"].get("runAsGroup", group))
for container in containers.values():
    for right in "allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities":
        check(f"kubernetes.yaml: {container['name']} is without {right}", right in container["securityContext"])
# Clients distrust a socket in a directory where everybody may write, as a pod's volume is.
make, = pod["initContainers"]
program(make["command"])
inside, = (mount for mount in make["volumeMounts"])
for container in containers.values():
    mount, = (mount for mount in container["volumeMounts"] if mount["mountPath"] == "/run/txda")
    same("kubernetes.yaml: the socket's volume", mount["name"], inside["name"])
    same("kubernetes.yaml: the socket's directory", make["command"][-1], f"{inside['mountPath']}/{mount['subPath']}")
(annotation, devices), = template["metadata"]["annotations"].items()
same("kubernetes.yaml: annotation", annotation, "cdi-devices.noderesource.dev/container.txdad")
# What the tool writes into the specification, and is documented.
cdi = re.search(r'#define CDI_KIND "(.*)"', (source / "tools/cdi/spec.h").read_text())[1]
for device in yaml.safe_load(devices):
    check(f"kubernetes.yaml: {device} is not documented", re.search(rf"\b{re.escape(device)}\b",
                                                                   (source / "docs/containers.md").read_text()))
    same("kubernetes.yaml: kind of device", device.split("=")[0], cdi)

print("user=" + shlex.quote(started["User"]))
print("environment=" + shlex.quote(shlex.join(started["Env"])))
print("daemon=" + shlex.quote(shlex.join(entry + words)))
print("health=" + shlex.quote(shlex.join(health)))
print("client_user=" + shlex.quote(client["user"]))
print("client=" + shlex.quote(shlex.join(client["entrypoint"])))
print("layer=" + shlex.quote(str(layer)))
