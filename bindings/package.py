#!/usr/bin/env python3
"""Writes the packages of scripts/package-bindings.sh:

    package.py wheel VERSION LIBRARIES LICENSES OUT   a wheel (PEP 427) in the folder OUT
    package.py npm VERSION LIBRARIES LICENSES OUT     the folder that npm packs

LIBRARIES: folder with the shared library and those that it needs; LICENSES: with their licences."""
import base64
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
SUMMARY = "Run large language models on ordinary machines"
TIME = (1980, 1, 1, 0, 0, 0)  # the same files give the same wheel


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def glibc(libraries):
    """The newest minor version of glibc whose symbols the libraries need."""
    needed = [int(n) for name in os.listdir(libraries)
              for n in re.findall(rb"\0GLIBC_2\.(\d+)", read(libraries, name))]
    return max(needed + [17])  # the oldest that pip knows as manylinux_2_N


def wheel(version, libraries, licenses, out):
    tag = "py3-none-manylinux_2_%d_%s" % (glibc(libraries), platform.machine())
    info = "powerinfer-%s.dist-info" % version
    files = {"powerinfer/__init__.py": read(HERE, "python", "powerinfer.py"),
             "powerinfer/py.typed": b""}
    for name in sorted(os.listdir(libraries)):
        files["powerinfer/" + name] = read(libraries, name)
    texts = sorted(os.listdir(licenses))
    for name in texts:
        files["%s/licenses/%s" % (info, name)] = read(licenses, name)
    files[info + "/METADATA"] = "\n".join(
        ["Metadata-Version: 2.4", "Name: powerinfer", "Version: " + version,
         "Summary: " + SUMMARY, "License: MIT; of the libraries inside: see licenses"]
        + ["License-File: " + name for name in texts]
        + ["Requires-Python: >=3.8", "Description-Content-Type: text/markdown", "",
           read(HERE, "python", "README.md").decode()]).encode()
    files[info + "/WHEEL"] = ("Wheel-Version: 1.0\nGenerator: powerinfer package.py\n"
                              "Root-Is-Purelib: false\nTag: %s\n" % tag).encode()
    record = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append("%s,sha256=%s,%d\n" % (name, digest, len(data)))
    record.append(info + "/RECORD,,\n")
    files[info + "/RECORD"] = "".join(record).encode()
    with zipfile.ZipFile(os.path.join(out, "powerinfer-%s-%s.whl" % (version, tag)), "w",
                         zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def npm(version, libraries, licenses, out):
    os.makedirs(out)
    for name in ("index.js", "index.d.ts", "abi.js", "constants.js", "README.md"):
        shutil.copy(os.path.join(HERE, "node", name), out)
    shutil.copytree(os.path.join(HERE, "node", "examples"), os.path.join(out, "examples"))
    shutil.copy(os.path.join(licenses, "powerinfer.txt"), os.path.join(out, "LICENSE"))
    shutil.copytree(libraries, os.path.join(out, "lib"))
    shutil.copytree(licenses, os.path.join(out, "lib", "licenses"))
    package = json.loads(read(HERE, "node", "package.json"))
    package["version"] = version
    machine = platform.machine()
    package["os"] = ["linux"]
    package["cpu"] = [{"x86_64": "x64", "aarch64": "arm64"}.get(machine, machine)]
    package["libc"] = ["glibc"]
    with open(os.path.join(out, "package.json"), "w", encoding="utf-8") as f:
        json.dump(package, f, indent=2)


if __name__ == "__main__":
    {"wheel": wheel, "npm": npm}[sys.argv[1]](*sys.argv[2:6])
